"""The names of the events, in groups that have payloads of one type. Written by `python -m tools.event_overloads`."""


from typing import Literal, TypeAlias

from ..events import RTVIEvent

NoDataName: TypeAlias = Literal[
    RTVIEvent.CONNECTED, "connected", "CONNECTED",
    RTVIEvent.BOT_CONNECTED, "botConnected", "BOT_CONNECTED", "bot_connected", "bot-connected",
    RTVIEvent.BOT_DISCONNECTED, "botDisconnected", "BOT_DISCONNECTED", "bot_disconnected", "bot-disconnected",
    RTVIEvent.PARTICIPANT_CONNECTED, "participantConnected", "PARTICIPANT_CONNECTED", "participant_connected", "participant-connected", "PARTICIPANT_JOINED", "participant_joined", "participant-joined",
    RTVIEvent.PARTICIPANT_LEFT, "participantLeft", "PARTICIPANT_LEFT", "participant_left", "participant-left",
    RTVIEvent.USER_STARTED_SPEAKING, "userStartedSpeaking", "USER_STARTED_SPEAKING", "user_started_speaking", "user-started-speaking",
    RTVIEvent.USER_STOPPED_SPEAKING, "userStoppedSpeaking", "USER_STOPPED_SPEAKING", "user_stopped_speaking", "user-stopped-speaking",
    RTVIEvent.VAD_USER_STARTED_SPEAKING, "vadUserStartedSpeaking", "VAD_USER_STARTED_SPEAKING", "vad_user_started_speaking", "vad-user-started-speaking",
    RTVIEvent.VAD_USER_STOPPED_SPEAKING, "vadUserStoppedSpeaking", "VAD_USER_STOPPED_SPEAKING", "vad_user_stopped_speaking", "vad-user-stopped-speaking",
    RTVIEvent.USER_MUTE_STARTED, "userMuteStarted", "USER_MUTE_STARTED", "user_mute_started", "user-mute-started",
    RTVIEvent.USER_MUTE_STOPPED, "userMuteStopped", "USER_MUTE_STOPPED", "user_mute_stopped", "user-mute-stopped",
    RTVIEvent.BOT_STARTED_SPEAKING, "botStartedSpeaking", "BOT_STARTED_SPEAKING", "bot_started_speaking", "bot-started-speaking",
    RTVIEvent.BOT_STOPPED_SPEAKING, "botStoppedSpeaking", "BOT_STOPPED_SPEAKING", "bot_stopped_speaking", "bot-stopped-speaking",
    RTVIEvent.BOT_INTERRUPTED, "botInterrupted", "BOT_INTERRUPTED", "bot_interrupted", "bot-interrupted",
    RTVIEvent.BOT_LLM_STARTED, "botLlmStarted", "BOT_LLM_STARTED", "bot_llm_started", "bot-llm-started",
    RTVIEvent.BOT_LLM_STOPPED, "botLlmStopped", "BOT_LLM_STOPPED", "bot_llm_stopped", "bot-llm-stopped",
    RTVIEvent.BOT_TTS_STARTED, "botTtsStarted", "BOT_TTS_STARTED", "bot_tts_started", "bot-tts-started",
    RTVIEvent.BOT_TTS_STOPPED, "botTtsStopped", "BOT_TTS_STOPPED", "bot_tts_stopped", "bot-tts-stopped",
]
CloseInfoName: TypeAlias = Literal[
    RTVIEvent.DISCONNECTED, "disconnected", "DISCONNECTED",
]
ReconnectingDataName: TypeAlias = Literal[
    RTVIEvent.RECONNECTING, "reconnecting", "RECONNECTING",
]
ReconnectFailedDataName: TypeAlias = Literal[
    RTVIEvent.RECONNECT_FAILED, "reconnectFailed", "RECONNECT_FAILED", "reconnect_failed", "reconnect-failed",
]
TransportStateName: TypeAlias = Literal[
    RTVIEvent.TRANSPORT_STATE_CHANGED, "transportStateChanged", "TRANSPORT_STATE_CHANGED", "transport_state_changed", "transport-state-changed",
]
ErrorDataName: TypeAlias = Literal[
    RTVIEvent.ERROR, "error", "ERROR",
    RTVIEvent.MESSAGE_ERROR, "messageError", "MESSAGE_ERROR", "message_error", "message-error", "ERROR_RESPONSE", "error_response", "error-response",
]
UnsupportedFeatureErrorName: TypeAlias = Literal[
    RTVIEvent.UNSUPPORTED_FEATURE, "unsupportedFeature", "UNSUPPORTED_FEATURE", "unsupported_feature", "unsupported-feature",
]
HandlerErrorName: TypeAlias = Literal[
    RTVIEvent.HANDLER_ERROR, "handlerError", "HANDLER_ERROR", "handler_error", "handler-error",
]
RTVIMessageName: TypeAlias = Literal[
    RTVIEvent.UNKNOWN_MESSAGE, "unknownMessage", "UNKNOWN_MESSAGE", "unknown_message", "unknown-message", "GENERIC_MESSAGE", "generic_message", "generic-message",
]
BotStartedDataName: TypeAlias = Literal[
    RTVIEvent.BOT_STARTED, "botStarted", "BOT_STARTED", "bot_started", "bot-started",
]
BotReadyDataName: TypeAlias = Literal[
    RTVIEvent.BOT_READY, "botReady", "BOT_READY", "bot_ready", "bot-ready",
]
UserInputDataName: TypeAlias = Literal[
    RTVIEvent.USER_INPUT, "userInput", "USER_INPUT", "user_input", "user-input",
]
TranscriptDataName: TypeAlias = Literal[
    RTVIEvent.USER_TRANSCRIPT, "userTranscript", "USER_TRANSCRIPT", "user_transcript", "user-transcript", "USER_TRANSCRIPTION", "user_transcription", "user-transcription",
    RTVIEvent.STT_RAW_TEXT, "sttRawText", "STT_RAW_TEXT", "stt_raw_text", "stt-raw-text",
]
UserLLMTextDataName: TypeAlias = Literal[
    RTVIEvent.USER_LLM_TEXT, "userLlmText", "USER_LLM_TEXT", "user_llm_text", "user-llm-text",
]
BotOutputDataName: TypeAlias = Literal[
    RTVIEvent.BOT_OUTPUT, "botOutput", "BOT_OUTPUT", "bot_output", "bot-output",
]
BotLLMTextDataName: TypeAlias = Literal[
    RTVIEvent.BOT_TRANSCRIPT, "botTranscript", "BOT_TRANSCRIPT", "bot_transcript", "bot-transcript", "BOT_TRANSCRIPTION", "bot_transcription", "bot-transcription",
    RTVIEvent.BOT_LLM_TEXT, "botLlmText", "BOT_LLM_TEXT", "bot_llm_text", "bot-llm-text", "BOT_TEXT", "bot_text", "bot-text",
    RTVIEvent.LLM_RAW_TEXT, "llmRawText", "LLM_RAW_TEXT", "llm_raw_text", "llm-raw-text",
]
BotLLMMarkerDataName: TypeAlias = Literal[
    RTVIEvent.BOT_LLM_MARKER, "botLlmMarker", "BOT_LLM_MARKER", "bot_llm_marker", "bot-llm-marker",
]
BotLLMSearchResponseDataName: TypeAlias = Literal[
    RTVIEvent.BOT_LLM_SEARCH_RESPONSE, "botLlmSearchResponse", "BOT_LLM_SEARCH_RESPONSE", "bot_llm_search_response", "bot-llm-search-response",
]
AnyDataName: TypeAlias = Literal[
    RTVIEvent.LLM_JSON_COMPLETION, "llmJsonCompletion", "LLM_JSON_COMPLETION", "llm_json_completion", "llm-json-completion",
    RTVIEvent.SERVER_MESSAGE, "serverMessage", "SERVER_MESSAGE", "server_message", "server-message",
]
BotTTSTextDataName: TypeAlias = Literal[
    RTVIEvent.BOT_TTS_TEXT, "botTtsText", "BOT_TTS_TEXT", "bot_tts_text", "bot-tts-text",
    RTVIEvent.TTS_RAW_TEXT, "ttsRawText", "TTS_RAW_TEXT", "tts_raw_text", "tts-raw-text",
]
BotTTSAudioDataName: TypeAlias = Literal[
    RTVIEvent.BOT_TTS_AUDIO, "botTtsAudio", "BOT_TTS_AUDIO", "bot_tts_audio", "bot-tts-audio",
]
LLMFunctionCallDataName: TypeAlias = Literal[
    RTVIEvent.LLM_FUNCTION_CALL, "llmFunctionCall", "LLM_FUNCTION_CALL", "llm_function_call", "llm-function-call",
]
LLMFunctionCallStartedDataName: TypeAlias = Literal[
    RTVIEvent.LLM_FUNCTION_CALL_START, "llmFunctionCallStart", "LLM_FUNCTION_CALL_START", "llm_function_call_start", "llm-function-call-start",
    RTVIEvent.LLM_FUNCTION_CALL_STARTED, "llmFunctionCallStarted", "LLM_FUNCTION_CALL_STARTED", "llm_function_call_started", "llm-function-call-started",
]
LLMFunctionCallInProgressDataName: TypeAlias = Literal[
    RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS, "llmFunctionCallInProgress", "LLM_FUNCTION_CALL_IN_PROGRESS", "llm_function_call_in_progress", "llm-function-call-in-progress",
]
LLMFunctionCallStoppedDataName: TypeAlias = Literal[
    RTVIEvent.LLM_FUNCTION_CALL_STOPPED, "llmFunctionCallStopped", "LLM_FUNCTION_CALL_STOPPED", "llm_function_call_stopped", "llm-function-call-stopped",
]
ServerResponseDataName: TypeAlias = Literal[
    RTVIEvent.SERVER_RESPONSE, "serverResponse", "SERVER_RESPONSE", "server_response", "server-response",
]
AppendToContextResultDataName: TypeAlias = Literal[
    RTVIEvent.APPEND_TO_CONTEXT_RESULT, "appendToContextResult", "APPEND_TO_CONTEXT_RESULT", "append_to_context_result", "append-to-context-result",
]
StorageItemStoredDataName: TypeAlias = Literal[
    RTVIEvent.STORAGE_ITEM_STORED, "storageItemStored", "STORAGE_ITEM_STORED", "storage_item_stored", "storage-item-stored",
]
UICommandDataName: TypeAlias = Literal[
    RTVIEvent.UI_COMMAND, "uiCommand", "UI_COMMAND", "ui_command", "ui-command",
]
UIJobGroupDataName: TypeAlias = Literal[
    RTVIEvent.UI_JOB_GROUP, "uiJobGroup", "UI_JOB_GROUP", "ui_job_group", "ui-job-group", "UI_TASK", "ui_task", "ui-task",
]
ConfigDataName: TypeAlias = Literal[
    RTVIEvent.CONFIG, "config", "CONFIG",
    RTVIEvent.CONFIG_UPDATED, "configUpdated", "CONFIG_UPDATED", "config_updated", "config-updated", "CONFIG_UPDATE", "config_update", "config-update",
]
ConfigAvailableDataName: TypeAlias = Literal[
    RTVIEvent.CONFIG_DESCRIBE, "configDescribe", "CONFIG_DESCRIBE", "config_describe", "config-describe", "CONFIG_AVAILABLE", "config_available", "config-available",
]
ActionsAvailableDataName: TypeAlias = Literal[
    RTVIEvent.ACTIONS_AVAILABLE, "actionsAvailable", "ACTIONS_AVAILABLE", "actions_available", "actions-available",
]
ActionResponseDataName: TypeAlias = Literal[
    RTVIEvent.ACTION_RESPONSE, "actionResponse", "ACTION_RESPONSE", "action_response", "action-response",
]
PipecatMetricsDataName: TypeAlias = Literal[
    RTVIEvent.METRICS, "metrics", "METRICS",
]
AudioLevelDataName: TypeAlias = Literal[
    RTVIEvent.USER_AUDIO_LEVEL, "userAudioLevel", "USER_AUDIO_LEVEL", "user_audio_level", "user-audio-level",
    RTVIEvent.BOT_AUDIO_LEVEL, "botAudioLevel", "BOT_AUDIO_LEVEL", "bot_audio_level", "bot-audio-level",
]
SystemLogDataName: TypeAlias = Literal[
    RTVIEvent.SYSTEM_LOG, "systemLog", "SYSTEM_LOG", "system_log", "system-log",
]
TrackDataName: TypeAlias = Literal[
    RTVIEvent.TRACK_STARTED, "trackStarted", "TRACK_STARTED", "track_started", "track-started",
    RTVIEvent.TRACK_STOPPED, "trackStopped", "TRACK_STOPPED", "track_stopped", "track-stopped",
    RTVIEvent.SCREEN_TRACK_STARTED, "screenTrackStarted", "SCREEN_TRACK_STARTED", "screen_track_started", "screen-track-started",
    RTVIEvent.SCREEN_TRACK_STOPPED, "screenTrackStopped", "SCREEN_TRACK_STOPPED", "screen_track_stopped", "screen-track-stopped",
]
DeviceErrorName: TypeAlias = Literal[
    RTVIEvent.SCREEN_SHARE_ERROR, "screenShareError", "SCREEN_SHARE_ERROR", "screen_share_error", "screen-share-error",
    RTVIEvent.DEVICE_ERROR, "deviceError", "DEVICE_ERROR", "device_error", "device-error",
]
AudioLevelName: TypeAlias = Literal[
    RTVIEvent.LOCAL_AUDIO_LEVEL, "localAudioLevel", "LOCAL_AUDIO_LEVEL", "local_audio_level", "local-audio-level",
    RTVIEvent.REMOTE_AUDIO_LEVEL, "remoteAudioLevel", "REMOTE_AUDIO_LEVEL", "remote_audio_level", "remote-audio-level",
]
MediaDeviceInfoListName: TypeAlias = Literal[
    RTVIEvent.AVAILABLE_CAMS_UPDATED, "availableCamsUpdated", "AVAILABLE_CAMS_UPDATED", "available_cams_updated", "available-cams-updated",
    RTVIEvent.AVAILABLE_MICS_UPDATED, "availableMicsUpdated", "AVAILABLE_MICS_UPDATED", "available_mics_updated", "available-mics-updated",
    RTVIEvent.AVAILABLE_SPEAKERS_UPDATED, "availableSpeakersUpdated", "AVAILABLE_SPEAKERS_UPDATED", "available_speakers_updated", "available-speakers-updated",
]
MediaDeviceInfoName: TypeAlias = Literal[
    RTVIEvent.CAM_UPDATED, "camUpdated", "CAM_UPDATED", "cam_updated", "cam-updated",
    RTVIEvent.MIC_UPDATED, "micUpdated", "MIC_UPDATED", "mic_updated", "mic-updated",
    RTVIEvent.SPEAKER_UPDATED, "speakerUpdated", "SPEAKER_UPDATED", "speaker_updated", "speaker-updated",
]
AudioDroppedDataName: TypeAlias = Literal[
    RTVIEvent.AUDIO_DROPPED, "audioDropped", "AUDIO_DROPPED", "audio_dropped", "audio-dropped",
]
MediaStateName: TypeAlias = Literal[
    RTVIEvent.MEDIA_STATE_UPDATED, "mediaStateUpdated", "MEDIA_STATE_UPDATED", "media_state_updated", "media-state-updated", "MEDIA_STATE_CHANGED", "media_state_changed", "media-state-changed",
]
TurnName: TypeAlias = Literal[
    RTVIEvent.TURN_STARTED, "turnStarted", "TURN_STARTED", "turn_started", "turn-started",
    RTVIEvent.TURN_ENDED, "turnEnded", "TURN_ENDED", "turn_ended", "turn-ended",
]
AnyName: TypeAlias = (
    NoDataName
    | CloseInfoName
    | ReconnectingDataName
    | ReconnectFailedDataName
    | TransportStateName
    | ErrorDataName
    | UnsupportedFeatureErrorName
    | HandlerErrorName
    | RTVIMessageName
    | BotStartedDataName
    | BotReadyDataName
    | UserInputDataName
    | TranscriptDataName
    | UserLLMTextDataName
    | BotOutputDataName
    | BotLLMTextDataName
    | BotLLMMarkerDataName
    | BotLLMSearchResponseDataName
    | AnyDataName
    | BotTTSTextDataName
    | BotTTSAudioDataName
    | LLMFunctionCallDataName
    | LLMFunctionCallStartedDataName
    | LLMFunctionCallInProgressDataName
    | LLMFunctionCallStoppedDataName
    | ServerResponseDataName
    | AppendToContextResultDataName
    | StorageItemStoredDataName
    | UICommandDataName
    | UIJobGroupDataName
    | ConfigDataName
    | ConfigAvailableDataName
    | ActionsAvailableDataName
    | ActionResponseDataName
    | PipecatMetricsDataName
    | AudioLevelDataName
    | SystemLogDataName
    | TrackDataName
    | DeviceErrorName
    | AudioLevelName
    | MediaDeviceInfoListName
    | MediaDeviceInfoName
    | AudioDroppedDataName
    | MediaStateName
    | TurnName
    | RTVIEvent
)
