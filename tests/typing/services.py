"""A user's program that asks much of its bot: config, actions, helpers, functions and all kinds of messages. It is
checked by mypy and pyright, and not executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rtvi_sync import (
    DEFAULT_TIMEOUT,
    ActionArgument,
    ActionEndpointNotSetError,
    BotNotReadyError,
    ConfigDescription,
    ConfigOption,
    ConfigUpdateError,
    FunctionCall,
    LLMFunctionCallData,
    LLMHelper,
    MessageTooLargeError,
    ProtocolError,
    RequestTimeoutError,
    RTVIActionRequestData,
    RTVIActionResponse,
    RTVIClient,
    RTVIClientConfigOption,
    RTVIClientHelper,
    RTVIMessage,
    Timeout,
    UnsupportedFeatureError,
)


def show(*values: object) -> None:
    """Stand for a program's use of values."""


def config(client: RTVIClient) -> None:
    """Read, prepare and change the bot's config."""
    known: list[RTVIClientConfigOption] | None = client.config
    told: list[RTVIClientConfigOption] = client.get_bot_config(timeout=2.5)
    same: list[RTVIClientConfigOption] = client.get_config(timeout=None)
    described: list[ConfigDescription] = client.describe_config()
    show(known, same, described[0].service)

    entry: RTVIClientConfigOption | None = client.get_service_options_from_config("tts", timeout=2.5)
    value: Any = client.get_service_option_value_from_config("tts", "voice", told)
    show(entry.options[0].name if entry is not None else None, value)

    changed: list[RTVIClientConfigOption]
    changed = client.set_service_option_in_config("tts", ConfigOption("voice", "alto"))
    changed = client.set_service_option_in_config("tts", {"name": "voice", "value": "alto"}, changed)
    changed = client.set_service_option_in_config("tts", [ConfigOption("a"), {"name": "b", "value": 1}], told)
    changed = client.set_config_options([RTVIClientConfigOption("tts", [ConfigOption("voice", "alto")])], changed)
    changed = client.set_config_options([{"service": "tts", "options": [{"name": "voice", "value": "alto"}]}])
    client.update_config("tts")  # type: ignore[arg-type]
    try:
        answer: RTVIMessage = client.update_config(changed, interrupt=True, timeout=5)
        show(answer.data)
    except ConfigUpdateError as error:
        show(error.response, error.status)
    except UnsupportedFeatureError as error:
        feature: str = error.feature
        versions: tuple[str | None, str | None] = error.needed_version, error.bot_version
        show(feature, versions)
    except (RequestTimeoutError, BotNotReadyError, ProtocolError):
        raise


def actions(client: RTVIClient) -> None:
    """Run actions, in a session and without one."""
    available: RTVIMessage = client.describe_actions(timeout=5)
    show(available.data["actions"])
    request = RTVIActionRequestData("llm", "run", [ActionArgument("interrupt", True), {"name": "a", "value": 1}])
    try:
        answer: RTVIActionResponse = client.action(request, timeout=5)
        show(answer.id, answer.label, answer.type, answer.data["result"])
        client.action({"service": "llm", "action": "run", "arguments": [{"name": "interrupt", "value": True}]})
        stream: Iterator[RTVIActionResponse] = client.action_stream(request, timeout=None)
        for message in stream:
            show(message.type)
        with closing(client.action_stream(request)) as first:
            show(next(first).type)
    except ActionEndpointNotSetError:
        client.params.endpoints.action = "action/"
    client.action("run")  # type: ignore[arg-type]


class SearchHelper(RTVIClientHelper):
    """A helper of the user's own."""

    message_types = ("search-result",)
    event_names = ("found",)

    def search(self, text: str, timeout: Timeout = DEFAULT_TIMEOUT) -> Any:
        """Call the action of the service."""
        request = RTVIActionRequestData(self.service, "search", [ActionArgument("text", text)])
        return self.client.action(request, timeout).data["result"]

    def get_message_types(self) -> Sequence[str]:
        """Return the types of the messages that it wants."""
        return [*super().get_message_types(), "more-results"]

    def handle_message(self, message: RTVIMessage) -> None:
        """Make an event of it."""
        self.emit("found", message.data)

    def on_registered(self) -> None:
        """Start."""

    def on_unregistered(self) -> None:
        """End."""


def helpers(client: RTVIClient) -> None:
    """Register the language model's helper, and one of the user's own."""

    def on_call(data: LLMFunctionCallData) -> None:
        show(data.arguments["city"])

    llm: LLMHelper = client.register_helper("llm", LLMHelper(callbacks={"on_llm_function_call": on_call}))
    context: Any = llm.get_context(timeout=5)
    llm.set_context([{"role": "user", "content": "Hello"}], interrupt=True)
    llm.set_context(context)
    llm.append_to_messages({"role": "user", "content": "Hello"}, run_immediately=True)
    llm.append_to_messages([{"role": "user", "content": "Hello"}])
    result: Any = llm.run(interrupt=True, timeout=None)
    llm.handle_function_call(lambda call: {"city": call.arguments["city"]})
    show(result)

    search: SearchHelper = client.register_helper("search", SearchHelper())
    handler = search.on("found", show)
    search.off("found", handler)
    show(search.search("cats"), search.client.version, search.service)
    found: RTVIClientHelper | None = client.get_helper("search")
    show(found)
    client.unregister_helper("search")
    client.register_helper("search", show)  # type: ignore[type-var]


def functions(client: RTVIClient) -> None:
    """Offer functions that the bot calls."""

    def weather(call: FunctionCall) -> dict[str, Any]:
        arguments: dict[str, Any] = call.arguments
        return {"city": arguments["city"], "of": f"{call.function_name} {call.tool_call_id}"}

    same = client.register_function_call_handler("get_weather", weather)
    show(same(FunctionCall("get_weather", "1", {"city": "Oslo"}))["city"])
    client.register_function_call_handler(None, lambda call: call.function_name)
    client.register_function_call_handler("get_time", lambda: 5)  # type: ignore[type-var]
    client.unregister_function_call_handler("get_weather")
    client.unregister_function_call_handler(None)
    client.unregister_all_function_call_handlers()


def messages(client: RTVIClient) -> None:
    """Send the other kinds of messages."""
    try:
        client.send_file(b"hello", "look", run_immediately=False, audio_response=False, format="text/plain", name="a")
        client.send_file(Path("cat.png"), custom_options={"detail": "low"})
        client.send_file("https://files.example/cat.png")
    except MessageTooLargeError:
        client.send_text("Too large")
    client.send_file(5)  # type: ignore[arg-type]
    client.append_to_context("user", [{"type": "text", "text": "Hello"}], run_immediately=True)
    client.send_dtmf("123#")
    client.send_dtmf(123)  # type: ignore[arg-type]
    client.send_ui_event("click", {"x": 1})
    client.send_ui_snapshot({"root": {"ref": "e1", "role": "main", "children": []}, "captured_at": 1})
    client.cancel_ui_job_group("job-1", reason="user")
