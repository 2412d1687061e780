"""The names of the events, in groups that have payloads of one type. Written by `python -m tools.event_overloads`."""


from typing import Literal, TypeAlias, TypeVar

from .events import RTVIEvent

NoDataName: TypeAlias = Literal[
    RTVIEvent.CONNECTED, "connected", "CONNECTED", "Connected", "on_connected", "onConnected",
    RTVIEvent.BOT_CONNECTED, "botConnected", "BOT_CONNECTED", "bot_connected", "bot-connected", "BotConnected", "on_bot_connected", "onBotConnected",
    RTVIEvent.BOT_DISCONNECTED, "botDisconnected", "BOT_DISCONNECTED", "bot_disconnected", "bot-disconnected", "BotDisconnected", "on_bot_disconnected", "onBotDisconnected",
    RTVIEvent.PARTICIPANT_CONNECTED, "participantConnected", "PARTICIPANT_CONNECTED", "participant_connected", "participant-connected", "ParticipantConnected", "on_participant_connected", "onParticipantConnected", "participantJoined", "PARTICIPANT_JOINED", "participant_joined", "participant-joined", "ParticipantJoined", "on_participant_joined", "onParticipantJoined",
    RTVIEvent.PARTICIPANT_LEFT, "participantLeft", "PARTICIPANT_LEFT", "participant_left", "participant-left", "ParticipantLeft", "on_participant_left", "onParticipantLeft",
    RTVIEvent.USER_STARTED_SPEAKING, "userStartedSpeaking", "USER_STARTED_SPEAKING", "user_started_speaking", "user-started-speaking", "UserStartedSpeaking", "on_user_started_speaking", "onUserStartedSpeaking",
    RTVIEvent.USER_STOPPED_SPEAKING, "userStoppedSpeaking", "USER_STOPPED_SPEAKING", "user_stopped_speaking", "user-stopped-speaking", "UserStoppedSpeaking", "on_user_stopped_speaking", "onUserStoppedSpeaking",
    RTVIEvent.VAD_USER_STARTED_SPEAKING, "vadUserStartedSpeaking", "VAD_USER_STARTED_SPEAKING", "vad_user_started_speaking", "vad-user-started-speaking", "VadUserStartedSpeaking", "on_vad_user_started_speaking", "onVadUserStartedSpeaking",
    RTVIEvent.VAD_USER_STOPPED_SPEAKING, "vadUserStoppedSpeaking", "VAD_USER_STOPPED_SPEAKING", "vad_user_stopped_speaking", "vad-user-stopped-speaking", "VadUserStoppedSpeaking", "on_vad_user_stopped_speaking", "onVadUserStoppedSpeaking",
    RTVIEvent.USER_MUTE_STARTED, "userMuteStarted", "USER_MUTE_STARTED", "user_mute_started", "user-mute-started", "UserMuteStarted", "on_user_mute_started", "onUserMuteStarted",
    RTVIEvent.USER_MUTE_STOPPED, "userMuteStopped", "USER_MUTE_STOPPED", "user_mute_stopped", "user-mute-stopped", "UserMuteStopped", "on_user_mute_stopped", "onUserMuteStopped",
    RTVIEvent.BOT_STARTED_SPEAKING, "botStartedSpeaking", "BOT_STARTED_SPEAKING", "bot_started_speaking", "bot-started-speaking", "BotStartedSpeaking", "on_bot_started_speaking", "onBotStartedSpeaking",
    RTVIEvent.BOT_STOPPED_SPEAKING, "botStoppedSpeaking", "BOT_STOPPED_SPEAKING", "bot_stopped_speaking", "bot-stopped-speaking", "BotStoppedSpeaking", "on_bot_stopped_speaking", "onBotStoppedSpeaking",
    RTVIEvent.BOT_INTERRUPTED, "botInterrupted", "BOT_INTERRUPTED", "bot_interrupted", "bot-interrupted", "BotInterrupted", "on_bot_interrupted", "onBotInterrupted",
    RTVIEvent.BOT_LLM_STARTED, "botLlmStarted", "BOT_LLM_STARTED", "bot_llm_started", "bot-llm-started", "BotLlmStarted", "on_bot_llm_started", "onBotLlmStarted",
    RTVIEvent.BOT_LLM_STOPPED, "botLlmStopped", "BOT_LLM_STOPPED", "bot_llm_stopped", "bot-llm-stopped", "BotLlmStopped", "on_bot_llm_stopped", "onBotLlmStopped",
    RTVIEvent.BOT_TTS_STARTED, "botTtsStarted", "BOT_TTS_STARTED", "bot_tts_started", "bot-tts-started", "BotTtsStarted", "on_bot_tts_started", "onBotTtsStarted",
    RTVIEvent.BOT_TTS_STOPPED, "botTtsStopped", "BOT_TTS_STOPPED", "bot_tts_stopped", "bot-tts-stopped", "BotTtsStopped", "on_bot_tts_stopped", "onBotTtsStopped",
]
CloseInfoName: TypeAlias = Literal[
    RTVIEvent.DISCONNECTED, "disconnected", "DISCONNECTED", "Disconnected", "on_disconnected", "onDisconnected",
]
ReconnectingDataName: TypeAlias = Literal[
    RTVIEvent.RECONNECTING, "reconnecting", "RECONNECTING", "Reconnecting", "on_reconnecting", "onReconnecting",
]
ReconnectFailedDataName: TypeAlias = Literal[
    RTVIEvent.RECONNECT_FAILED, "reconnectFailed", "RECONNECT_FAILED", "reconnect_failed", "reconnect-failed", "ReconnectFailed", "on_reconnect_failed", "onReconnectFailed",
]
TransportStateName: TypeAlias = Literal[
    RTVIEvent.TRANSPORT_STATE_CHANGED, "transportStateChanged", "TRANSPORT_STATE_CHANGED", "transport_state_changed", "transport-state-changed", "TransportStateChanged", "on_transport_state_changed", "onTransportStateChanged",
]
ErrorDataName: TypeAlias = Literal[
    RTVIEvent.ERROR, "error", "ERROR", "Error", "on_error", "onError",
    RTVIEvent.MESSAGE_ERROR, "messageError", "MESSAGE_ERROR", "message_error", "message-error", "MessageError", "on_message_error", "onMessageError", "errorResponse", "ERROR_RESPONSE", "error_response", "error-response", "ErrorResponse", "on_error_response", "onErrorResponse",
]
UnsupportedFeatureErrorName: TypeAlias = Literal[
    RTVIEvent.UNSUPPORTED_FEATURE, "unsupportedFeature", "UNSUPPORTED_FEATURE", "unsupported_feature", "unsupported-feature", "UnsupportedFeature", "on_unsupported_feature", "onUnsupportedFeature",
]
HandlerErrorName: TypeAlias = Literal[
    RTVIEvent.HANDLER_ERROR, "handlerError", "HANDLER_ERROR", "handler_error", "handler-error", "HandlerError", "on_handler_error", "onHandlerError",
]
RTVIMessageName: TypeAlias = Literal[
    RTVIEvent.UNKNOWN_MESSAGE, "unknownMessage", "UNKNOWN_MESSAGE", "unknown_message", "unknown-message", "UnknownMessage", "on_unknown_message", "onUnknownMessage", "genericMessage", "GENERIC_MESSAGE", "generic_message", "generic-message", "GenericMessage", "on_generic_message", "onGenericMessage",
]
BotStartedDataName: TypeAlias = Literal[
    RTVIEvent.BOT_STARTED, "botStarted", "BOT_STARTED", "bot_started", "bot-started", "BotStarted", "on_bot_started", "onBotStarted",
]
BotReadyDataName: TypeAlias = Literal[
    RTVIEvent.BOT_READY, "botReady", "BOT_READY", "bot_ready", "bot-ready", "BotReady", "on_bot_ready", "onBotReady",
]
UserInputDataName: TypeAlias = Literal[
    RTVIEvent.USER_INPUT, "userInput", "USER_INPUT", "user_input", "user-input", "UserInput", "on_user_input", "onUserInput",
]
TranscriptDataName: TypeAlias = Literal[
    RTVIEvent.USER_TRANSCRIPT, "userTranscript", "USER_TRANSCRIPT", "user_transcript", "user-transcript", "UserTranscript", "on_user_transcript", "onUserTranscript", "userTranscription", "USER_TRANSCRIPTION", "user_transcription", "user-transcription", "UserTranscription", "on_user_transcription", "onUserTranscription",
    RTVIEvent.STT_RAW_TEXT, "sttRawText", "STT_RAW_TEXT", "stt_raw_text", "stt-raw-text", "SttRawText", "on_stt_raw_text", "onSttRawText",
]
UserLLMTextDataName: TypeAlias = Literal[
    RTVIEvent.USER_LLM_TEXT, "userLlmText", "USER_LLM_TEXT", "user_llm_text", "user-llm-text", "UserLlmText", "on_user_llm_text", "onUserLlmText",
]
BotOutputDataName: TypeAlias = Literal[
    RTVIEvent.BOT_OUTPUT, "botOutput", "BOT_OUTPUT", "bot_output", "bot-output", "BotOutput", "on_bot_output", "onBotOutput",
]
BotLLMTextDataName: TypeAlias = Literal[
    RTVIEvent.BOT_TRANSCRIPT, "botTranscript", "BOT_TRANSCRIPT", "bot_transcript", "bot-transcript", "BotTranscript", "on_bot_transcript", "onBotTranscript", "botTranscription", "BOT_TRANSCRIPTION", "bot_transcription", "bot-transcription", "BotTranscription", "on_bot_transcription", "onBotTranscription",
    RTVIEvent.BOT_LLM_TEXT, "botLlmText", "BOT_LLM_TEXT", "bot_llm_text", "bot-llm-text", "BotLlmText", "on_bot_llm_text", "onBotLlmText", "botText", "BOT_TEXT", "bot_text", "bot-text", "BotText", "on_bot_text", "onBotText",
    RTVIEvent.LLM_RAW_TEXT, "llmRawText", "LLM_RAW_TEXT", "llm_raw_text", "llm-raw-text", "LlmRawText", "on_llm_raw_text", "onLlmRawText",
]
BotLLMMarkerDataName: TypeAlias = Literal[
    RTVIEvent.BOT_LLM_MARKER, "botLlmMarker", "BOT_LLM_MARKER", "bot_llm_marker", "bot-llm-marker", "BotLlmMarker", "on_bot_llm_marker", "onBotLlmMarker",
]
BotLLMSearchResponseDataName: TypeAlias = Literal[
    RTVIEvent.BOT_LLM_SEARCH_RESPONSE, "botLlmSearchResponse", "BOT_LLM_SEARCH_RESPONSE", "bot_llm_search_response", "bot-llm-search-response", "BotLlmSearchResponse", "on_bot_llm_search_response", "onBotLlmSearchResponse",
]
AnyDataName: TypeAlias = Literal[
    RTVIEvent.LLM_JSON_COMPLETION, "llmJsonCompletion", "LLM_JSON_COMPLETION", "llm_json_completion", "llm-json-completion", "LlmJsonCompletion", "on_llm_json_completion", "onLlmJsonCompletion",
    RTVIEvent.SERVER_MESSAGE, "serverMessage", "SERVER_MESSAGE", "server_message", "server-message", "ServerMessage", "on_server_message", "onServerMessage",
]
BotTTSTextDataName: TypeAlias = Literal[
    RTVIEvent.BOT_TTS_TEXT, "botTtsText", "BOT_TTS_TEXT", "bot_tts_text", "bot-tts-text", "BotTtsText", "on_bot_tts_text", "onBotTtsText",
    RTVIEvent.TTS_RAW_TEXT, "ttsRawText", "TTS_RAW_TEXT", "tts_raw_text", "tts-raw-text", "TtsRawText", "on_tts_raw_text", "onTtsRawText",
]
BotTTSAudioDataName: TypeAlias = Literal[
    RTVIEvent.BOT_TTS_AUDIO, "botTtsAudio", "BOT_TTS_AUDIO", "bot_tts_audio", "bot-tts-audio", "BotTtsAudio", "on_bot_tts_audio", "onBotTtsAudio",
]
LLMFunctionCallDataName: TypeAlias = Literal[
    RTVIEvent.LLM_FUNCTION_CALL, "llmFunctionCall", "LLM_FUNCTION_CALL", "llm_function_call", "llm-function-call", "LlmFunctionCall", "on_llm_function_call", "onLlmFunctionCall",
]
LLMFunctionCallStartedDataName: TypeAlias = Literal[
    RTVIEvent.LLM_FUNCTION_CALL_START, "llmFunctionCallStart", "LLM_FUNCTION_CALL_START", "llm_function_call_start", "llm-function-call-start", "LlmFunctionCallStart", "on_llm_function_call_start", "onLlmFunctionCallStart",
    RTVIEvent.LLM_FUNCTION_CALL_STARTED, "llmFunctionCallStarted", "LLM_FUNCTION_CALL_STARTED", "llm_function_call_started", "llm-function-call-started", "LlmFunctionCallStarted", "on_llm_function_call_started", "onLlmFunctionCallStarted",
]
LLMFunctionCallInProgressDataName: TypeAlias = Literal[
    RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS, "llmFunctionCallInProgress", "LLM_FUNCTION_CALL_IN_PROGRESS", "llm_function_call_in_progress", "llm-function-call-in-progress", "LlmFunctionCallInProgress", "on_llm_function_call_in_progress", "onLlmFunctionCallInProgress",
]
LLMFunctionCallStoppedDataName: TypeAlias = Literal[
    RTVIEvent.LLM_FUNCTION_CALL_STOPPED, "llmFunctionCallStopped", "LLM_FUNCTION_CALL_STOPPED", "llm_function_call_stopped", "llm-function-call-stopped", "LlmFunctionCallStopped", "on_llm_function_call_stopped", "onLlmFunctionCallStopped",
]
ServerResponseDataName: TypeAlias = Literal[
    RTVIEvent.SERVER_RESPONSE, "serverResponse", "SERVER_RESPONSE", "server_response", "server-response", "ServerResponse", "on_server_response", "onServerResponse",
]
AppendToContextResultDataName: TypeAlias = Literal[
    RTVIEvent.APPEND_TO_CONTEXT_RESULT, "appendToContextResult", "APPEND_TO_CONTEXT_RESULT", "append_to_context_result", "append-to-context-result", "AppendToContextResult", "on_append_to_context_result", "onAppendToContextResult",
]
StorageItemStoredDataName: TypeAlias = Literal[
    RTVIEvent.STORAGE_ITEM_STORED, "storageItemStored", "STORAGE_ITEM_STORED", "storage_item_stored", "storage-item-stored", "StorageItemStored", "on_storage_item_stored", "onStorageItemStored",
]
UICommandDataName: TypeAlias = Literal[
    RTVIEvent.UI_COMMAND, "uiCommand", "UI_COMMAND", "ui_command", "ui-command", "UiCommand", "on_ui_command", "onUiCommand",
]
UIJobGroupDataName: TypeAlias = Literal[
    RTVIEvent.UI_JOB_GROUP, "uiJobGroup", "UI_JOB_GROUP", "ui_job_group", "ui-job-group", "UiJobGroup", "on_ui_job_group", "onUiJobGroup", "uiTask", "UI_TASK", "ui_task", "ui-task", "UiTask", "on_ui_task", "onUiTask",
]
ConfigDataName: TypeAlias = Literal[
    RTVIEvent.CONFIG, "config", "CONFIG", "Config", "on_config", "onConfig",
    RTVIEvent.CONFIG_UPDATED, "configUpdated", "CONFIG_UPDATED", "config_updated", "config-updated", "ConfigUpdated", "on_config_updated", "onConfigUpdated", "configUpdate", "CONFIG_UPDATE", "config_update", "config-update", "ConfigUpdate", "on_config_update", "onConfigUpdate",
]
ConfigAvailableDataName: TypeAlias = Literal[
    RTVIEvent.CONFIG_DESCRIBE, "configDescribe", "CONFIG_DESCRIBE", "config_describe", "config-describe", "ConfigDescribe", "on_config_describe", "onConfigDescribe", "configAvailable", "CONFIG_AVAILABLE", "config_available", "config-available", "ConfigAvailable", "on_config_available", "onConfigAvailable",
]
ActionsAvailableDataName: TypeAlias = Literal[
    RTVIEvent.ACTIONS_AVAILABLE, "actionsAvailable", "ACTIONS_AVAILABLE", "actions_available", "actions-available", "ActionsAvailable", "on_actions_available", "onActionsAvailable",
]
ActionResponseDataName: TypeAlias = Literal[
    RTVIEvent.ACTION_RESPONSE, "actionResponse", "ACTION_RESPONSE", "action_response", "action-response", "ActionResponse", "on_action_response", "onActionResponse",
]
PipecatMetricsDataName: TypeAlias = Literal[
    RTVIEvent.METRICS, "metrics", "METRICS", "Metrics", "on_metrics", "onMetrics",
]
AudioLevelDataName: TypeAlias = Literal[
    RTVIEvent.USER_AUDIO_LEVEL, "userAudioLevel", "USER_AUDIO_LEVEL", "user_audio_level", "user-audio-level", "UserAudioLevel", "on_user_audio_level", "onUserAudioLevel",
    RTVIEvent.BOT_AUDIO_LEVEL, "botAudioLevel", "BOT_AUDIO_LEVEL", "bot_audio_level", "bot-audio-level", "BotAudioLevel", "on_bot_audio_level", "onBotAudioLevel",
]
SystemLogDataName: TypeAlias = Literal[
    RTVIEvent.SYSTEM_LOG, "systemLog", "SYSTEM_LOG", "system_log", "system-log", "SystemLog", "on_system_log", "onSystemLog",
]
TrackDataName: TypeAlias = Literal[
    RTVIEvent.TRACK_STARTED, "trackStarted", "TRACK_STARTED", "track_started", "track-started", "TrackStarted", "on_track_started", "onTrackStarted",
    RTVIEvent.TRACK_STOPPED, "trackStopped", "TRACK_STOPPED", "track_stopped", "track-stopped", "TrackStopped", "on_track_stopped", "onTrackStopped",
    RTVIEvent.SCREEN_TRACK_STARTED, "screenTrackStarted", "SCREEN_TRACK_STARTED", "screen_track_started", "screen-track-started", "ScreenTrackStarted", "on_screen_track_started", "onScreenTrackStarted",
    RTVIEvent.SCREEN_TRACK_STOPPED, "screenTrackStopped", "SCREEN_TRACK_STOPPED", "screen_track_stopped", "screen-track-stopped", "ScreenTrackStopped", "on_screen_track_stopped", "onScreenTrackStopped",
]
DeviceErrorName: TypeAlias = Literal[
    RTVIEvent.SCREEN_SHARE_ERROR, "screenShareError", "SCREEN_SHARE_ERROR", "screen_share_error", "screen-share-error", "ScreenShareError", "on_screen_share_error", "onScreenShareError",
    RTVIEvent.DEVICE_ERROR, "deviceError", "DEVICE_ERROR", "device_error", "device-error", "DeviceError", "on_device_error", "onDeviceError",
]
AudioLevelName: TypeAlias = Literal[
    RTVIEvent.LOCAL_AUDIO_LEVEL, "localAudioLevel", "LOCAL_AUDIO_LEVEL", "local_audio_level", "local-audio-level", "LocalAudioLevel", "on_local_audio_level", "onLocalAudioLevel",
    RTVIEvent.REMOTE_AUDIO_LEVEL, "remoteAudioLevel", "REMOTE_AUDIO_LEVEL", "remote_audio_level", "remote-audio-level", "RemoteAudioLevel", "on_remote_audio_level", "onRemoteAudioLevel",
]
MediaDeviceInfoListName: TypeAlias = Literal[
    RTVIEvent.AVAILABLE_CAMS_UPDATED, "availableCamsUpdated", "AVAILABLE_CAMS_UPDATED", "available_cams_updated", "available-cams-updated", "AvailableCamsUpdated", "on_available_cams_updated", "onAvailableCamsUpdated",
    RTVIEvent.AVAILABLE_MICS_UPDATED, "availableMicsUpdated", "AVAILABLE_MICS_UPDATED", "available_mics_updated", "available-mics-updated", "AvailableMicsUpdated", "on_available_mics_updated", "onAvailableMicsUpdated",
    RTVIEvent.AVAILABLE_SPEAKERS_UPDATED, "availableSpeakersUpdated", "AVAILABLE_SPEAKERS_UPDATED", "available_speakers_updated", "available-speakers-updated", "AvailableSpeakersUpdated", "on_available_speakers_updated", "onAvailableSpeakersUpdated",
]
MediaDeviceInfoName: TypeAlias = Literal[
    RTVIEvent.CAM_UPDATED, "camUpdated", "CAM_UPDATED", "cam_updated", "cam-updated", "CamUpdated", "on_cam_updated", "onCamUpdated",
    RTVIEvent.MIC_UPDATED, "micUpdated", "MIC_UPDATED", "mic_updated", "mic-updated", "MicUpdated", "on_mic_updated", "onMicUpdated",
    RTVIEvent.SPEAKER_UPDATED, "speakerUpdated", "SPEAKER_UPDATED", "speaker_updated", "speaker-updated", "SpeakerUpdated", "on_speaker_updated", "onSpeakerUpdated",
]
AudioDroppedDataName: TypeAlias = Literal[
    RTVIEvent.AUDIO_DROPPED, "audioDropped", "AUDIO_DROPPED", "audio_dropped", "audio-dropped", "AudioDropped", "on_audio_dropped", "onAudioDropped",
]
MediaStateName: TypeAlias = Literal[
    RTVIEvent.MEDIA_STATE_UPDATED, "mediaStateUpdated", "MEDIA_STATE_UPDATED", "media_state_updated", "media-state-updated", "MediaStateUpdated", "on_media_state_updated", "onMediaStateUpdated", "mediaStateChanged", "MEDIA_STATE_CHANGED", "media_state_changed", "media-state-changed", "MediaStateChanged", "on_media_state_changed", "onMediaStateChanged",
]
TurnName: TypeAlias = Literal[
    RTVIEvent.TURN_STARTED, "turnStarted", "TURN_STARTED", "turn_started", "turn-started", "TurnStarted", "on_turn_started", "onTurnStarted",
    RTVIEvent.TURN_ENDED, "turnEnded", "TURN_ENDED", "turn_ended", "turn-ended", "TurnEnded", "on_turn_ended", "onTurnEnded",
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
# mypy shows the name of this variable in an error, and not all the names of events.
NameOfAnEvent = TypeVar("NameOfAnEvent", bound=AnyName)
