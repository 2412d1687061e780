"""A user's program that reads every payload. It is checked by mypy and pyright, and not executed."""

from __future__ import annotations

from typing import Any

from rtvi_sync import (
    AboutBotData,
    ActionDescription,
    ActionResponseData,
    ActionsAvailableData,
    AppendToContextResultData,
    AudioLevelData,
    BotCapabilities,
    BotLLMMarkerData,
    BotLLMSearchResponseData,
    BotLLMTextData,
    BotOutputData,
    BotReadyData,
    BotStartedData,
    BotTTSAudioData,
    BotTTSTextData,
    CloseInfo,
    ConfigAvailableData,
    ConfigData,
    ConfigDescription,
    ConfigOption,
    ErrorData,
    HandlerError,
    LLMFunctionCallData,
    LLMFunctionCallInProgressData,
    LLMFunctionCallStartedData,
    LLMFunctionCallStoppedData,
    LLMSearchOrigin,
    LLMSearchResult,
    LLMTokenUsageData,
    OptionDescription,
    Payload,
    PipecatMetricData,
    PipecatMetricsData,
    ReconnectFailedData,
    ReconnectingData,
    RTVIClient,
    RTVIClientConfigOption,
    ServerResponseData,
    SpokenProgressData,
    StorageItemStoredData,
    STTUsageData,
    STTUsageMetricData,
    SystemLogData,
    TranscriptData,
    TTFAMetricData,
    TTFATMetricData,
    UICommandData,
    UIJobCompletedEnvelope,
    UIJobGroupCompletedEnvelope,
    UIJobGroupData,
    UIJobGroupStartedEnvelope,
    UIJobUpdateEnvelope,
    UserInputData,
    UserLLMTextData,
    UserTranscriptionData,
)


def show_text(*values: str | None) -> None:
    """Stand for a program's use of texts."""


def show_number(*values: float | None) -> None:
    """Stand for a program's use of numbers, and of yes or no."""


def show_json(value: Any, *extra: dict[str, Any]) -> None:
    """Stand for a program's use of plain JSON."""


# The session


def on_bot_ready(data: BotReadyData) -> None:
    """Show all that a bot says about itself."""
    about: AboutBotData = data.about
    can: BotCapabilities = data.capabilities
    show_text(data.version, about.library, about.library_version)
    show_number(can.audio_in, can.audio_out, can.video_in, can.screen_in, can.video_out, can.metrics)
    if data.config is not None:
        on_config(ConfigData(config=data.config))
    any_of_them: Payload = data
    show_json(None, any_of_them.extra, about.extra)


def on_bot_started(data: BotStartedData) -> None:
    """Show a server's answer."""
    show_json(data.response)


def on_disconnected(info: CloseInfo) -> None:
    """Show how a session ended."""
    show_text(info.reason, info.initiator, info.describe())
    show_number(info.code, info.reconnecting)
    if info.error is not None:
        raise info.error


def on_reconnecting(data: ReconnectingData) -> None:
    """Show that another attempt follows."""
    show_number(data.attempt, data.max_attempts, data.delay)
    show_text(str(data.error), data.describe())


def on_reconnect_failed(data: ReconnectFailedData) -> None:
    """Show that no other attempt follows."""
    show_number(data.attempts)
    show_text(str(data.error))


def on_error(data: ErrorData) -> None:
    """Show an error of the bot."""
    show_text(data.message)
    show_number(data.fatal)


def on_handler_error(data: HandlerError) -> None:
    """Show an error of this side."""
    show_text(repr(data.error), data.event.type.snake, repr(data.handler))


# Speech and text


def on_user_input(data: UserInputData) -> None:
    """Show the user's spoken or typed words."""
    show_text(data.text, data.input_type, data.timestamp, data.user_id, data.msg_id)
    show_number(data.final)


def on_transcript(data: TranscriptData) -> None:
    """Show the heard words; the class has two names."""
    same: UserTranscriptionData = data
    show_text(same.text, same.timestamp, same.user_id)
    show_number(same.final)


def on_user_llm_text(data: UserLLMTextData) -> None:
    """Show the text for the language model."""
    show_text(data.text)


def on_bot_output(data: BotOutputData) -> None:
    """Show the bot's words, and their progress."""
    progress: SpokenProgressData | None = data.spoken_progress
    if progress is not None:
        show_text(progress.accumulated_text, progress.remaining_text)
    show_text(data.text, data.output_type, data.text_type, data.aggregated_by, data.spoken_status)
    show_number(data.segment_id, data.spoken, data.will_be_spoken)


def on_text(data: BotLLMTextData | BotTTSTextData | SystemLogData) -> None:
    """Show payloads that are text and nothing else."""
    show_text(data.text)


def on_marker(data: BotLLMMarkerData) -> None:
    """Show the markers of the language model."""
    show_text(data.text, data.kind, data.raw, *data.markers)


def on_search(data: BotLLMSearchResponseData) -> None:
    """Show the results of a search."""
    show_text(data.search_result, data.rendered_content)
    origin: LLMSearchOrigin
    for origin in data.origins:
        show_text(origin.site_uri, origin.site_title)
        result: LLMSearchResult
        for result in origin.results:
            show_text(result.text)
            show_number(*result.confidence)


def on_audio(data: BotTTSAudioData) -> None:
    """Show speech as a message."""
    show_text(data.audio)
    show_number(data.sample_rate, data.num_channels)


def on_level(data: AudioLevelData) -> None:
    """Show how loud it is."""
    show_number(data.value)


# Function calls


def on_call_started(data: LLMFunctionCallStartedData) -> None:
    """Show a call that starts."""
    show_text(data.function_name)


def on_call(data: LLMFunctionCallInProgressData | LLMFunctionCallData) -> None:
    """Show a call that runs."""
    show_text(data.tool_call_id, data.function_name)
    show_json(data.arguments)


def on_call_stopped(data: LLMFunctionCallStoppedData) -> None:
    """Show a call that has ended."""
    show_text(data.tool_call_id, data.function_name)
    show_number(data.cancelled)
    show_json(data.result)


# The application's own


def on_server_response(data: ServerResponseData) -> None:
    """Show an answer of the server."""
    show_text(data.t)
    show_json(data.d)


def on_context(data: AppendToContextResultData) -> None:
    """Show an answer about the context."""
    show_json(data.result)


def on_storage(data: StorageItemStoredData) -> None:
    """Show the stored data."""
    show_text(data.action)
    show_json(data.items)


def on_ui_command(data: UICommandData) -> None:
    """Show a command for the user interface."""
    show_text(data.command)
    show_json(data.payload)


def on_jobs(data: UIJobGroupData) -> None:
    """Show the results of a group of jobs."""
    show_text(data.kind, data.job_id)
    show_number(data.at)
    if isinstance(data, UIJobGroupStartedEnvelope):
        show_text(data.label, *data.workers)
        show_number(data.cancellable)
    elif isinstance(data, UIJobUpdateEnvelope):
        show_text(data.worker_name)
        show_json(data.data)
    elif isinstance(data, UIJobCompletedEnvelope):
        show_text(data.worker_name, data.status)
        show_json(data.response)
    elif isinstance(data, UIJobGroupCompletedEnvelope):
        show_text(data.job_id)


# Services


def on_config(data: ConfigData) -> None:
    """Show a config."""
    entry: RTVIClientConfigOption
    for entry in data.config:
        option: ConfigOption
        for option in entry.options:
            show_text(entry.service, option.name)
            show_json(option.value, option.extra)


def on_config_described(data: ConfigAvailableData) -> None:
    """Show the possible parts of a config."""
    entry: ConfigDescription
    for entry in data.config:
        on_options(entry.service, *entry.options)


def on_options(of: str, *options: OptionDescription) -> None:
    """Show the available options and arguments."""
    for option in options:
        show_text(of, option.name, option.type)


def on_actions(data: ActionsAvailableData) -> None:
    """Show the available actions."""
    entry: ActionDescription
    for entry in data.actions:
        show_text(entry.service, entry.action, entry.result)
        on_options(entry.action, *entry.arguments)


def on_action(data: ActionResponseData) -> None:
    """Show the result of an action."""
    show_json(data.result)


def on_metrics(data: PipecatMetricsData) -> None:
    """Show measurements of all kinds."""
    figure: PipecatMetricData
    for figure in (*data.ttfb, *data.processing, *data.characters):
        show_text(figure.processor, figure.model)
        show_number(figure.value)
    tokens: LLMTokenUsageData
    for tokens in data.tokens:
        show_number(tokens.prompt_tokens, tokens.completion_tokens, tokens.total_tokens)
        show_number(tokens.cache_read_input_tokens, tokens.cache_creation_input_tokens, tokens.reasoning_tokens)
        show_number(tokens.input_audio_tokens, tokens.output_audio_tokens, tokens.cache_read_input_audio_tokens)
    audible: TTFAMetricData
    for audible in data.ttfa:
        show_text(audible.processor, audible.model)
        show_number(audible.ttfa, audible.ttfb, audible.leading_silence)
    token: TTFATMetricData
    for token in data.ttfat:
        show_text(token.processor, token.model)
        show_number(token.ttfat, token.ttfb, token.thinking_time)
    usage: STTUsageMetricData
    for usage in data.stt_usage:
        heard: STTUsageData = usage.value
        show_text(usage.processor, usage.model)
        show_number(heard.audio_seconds)


def listen(client: RTVIClient) -> None:
    """Register all of them."""
    client.on("bot_ready", on_bot_ready)
    client.on("bot_started", on_bot_started)
    client.on("disconnected", on_disconnected)
    client.on("reconnecting", on_reconnecting)
    client.on("reconnect_failed", on_reconnect_failed)
    client.on("error", on_error)
    client.on("message_error", on_error)
    client.on("handler_error", on_handler_error)
    client.on("user_input", on_user_input)
    client.on("user_transcript", on_transcript)
    client.on("user_llm_text", on_user_llm_text)
    client.on("bot_output", on_bot_output)
    client.on("bot_llm_text", on_text)
    client.on("bot_tts_text", on_text)
    client.on("system_log", on_text)
    client.on("bot_llm_marker", on_marker)
    client.on("bot_llm_search_response", on_search)
    client.on("bot_tts_audio", on_audio)
    client.on("bot_audio_level", on_level)
    client.on("llm_function_call_started", on_call_started)
    client.on("llm_function_call_in_progress", on_call)
    client.on("llm_function_call", on_call)
    client.on("llm_function_call_stopped", on_call_stopped)
    client.on("server_response", on_server_response)
    client.on("append_to_context_result", on_context)
    client.on("storage_item_stored", on_storage)
    client.on("ui_command", on_ui_command)
    client.on("ui_job_group", on_jobs)
    client.on("config", on_config)
    client.on("config_updated", on_config)
    client.on("config_describe", on_config_described)
    client.on("actions_available", on_actions)
    client.on("action_response", on_action)
    client.on("metrics", on_metrics)
