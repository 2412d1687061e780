"""Sessions in which a real bot shows every message that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from rtvi_sync import Event, RTVIEvent, RTVIMessage
from rtvi_sync.media import ToneSource
from tests.pipecat.clients import Watch, as_list, client_of
from tests.pipecat.conftest import BotServer
from tests.support.slowness import GUARD

# A word, and then the silence that ends the turn
SPEECH_SECONDS = 0.4


@attrs.frozen
class Scene:
    """Something that a bot shows on demand, and the last event of it."""

    name: str
    last: RTVIEvent
    where: Callable[[Any], object] = lambda data: True


def _is_empty(metrics: Any) -> bool:
    return not any(attrs.astuple(metrics, recurse=False))


_EVERY_BOT = [
    Scene("metrics", RTVIEvent.METRICS, _is_empty),
    Scene("server-messages", RTVIEvent.SERVER_MESSAGE, lambda data: data == {"nested": {"key": "ä"}}),
    Scene("error", RTVIEvent.ERROR),
    Scene("speech", RTVIEvent.BOT_TTS_AUDIO),
]
_MUTE = Scene("mute", RTVIEvent.USER_MUTE_STOPPED)
_LOG = Scene("log", RTVIEvent.SYSTEM_LOG, lambda data: "a line of the log" in data.text)
SCENES: Mapping[str, list[Scene]] = {
    "1.14.0": [
        *_EVERY_BOT,
        _MUTE,
        _LOG,
        Scene("more-metrics", RTVIEvent.METRICS, lambda data: data.stt_usage),
        Scene("jobs", RTVIEvent.UI_JOB_GROUP, lambda data: data.kind == "group_completed"),
        Scene("search", RTVIEvent.BOT_LLM_SEARCH_RESPONSE),
        Scene("commands", RTVIEvent.UI_COMMAND, lambda data: data.command == "refresh"),
        Scene("marker", RTVIEvent.BOT_LLM_MARKER),
        Scene("backchannel", RTVIEvent.USER_INPUT, lambda data: data.input_type == "backchannel"),
    ],
    "0.0.108": [*_EVERY_BOT, _MUTE, _LOG, Scene("appended", RTVIEvent.APPEND_TO_CONTEXT_RESULT)],
    "0.0.73": [
        *_EVERY_BOT,
        Scene("storage", RTVIEvent.STORAGE_ITEM_STORED),
        Scene("completion", RTVIEvent.LLM_JSON_COMPLETION),
        Scene("function-call-start", RTVIEvent.LLM_FUNCTION_CALL_START),
    ],
}
KINDS = {"1.14.0": "showcase", "0.0.108": "configured-1.2", "0.0.73": "configured-0.3"}
# The levels at which calls are reported, and their functions; only 1.14.0 has them all.
LEVELS = {"1.14.0": ["none", "name", "arguments", "full"], "0.0.108": ["none", "name", "full"], "0.0.73": ["full"]}


def show_everything(server: BotServer, version: str) -> list[Event]:
    """Have a bot say and show everything that it has; return the events of the session.

    Args:
        server: a bot that is a key's of `KINDS`.
        version: its Pipecat.
    """
    is_old = version == "0.0.73"
    mic = ToneSource(440, duration=SPEECH_SECONDS, sample_rate_hz=16000)
    client = client_of(server, mic=mic)

    def type_in(text: str) -> None:
        """Type something as the user; the old bot's way to do so is an action."""
        if is_old:
            messages = [{"role": "user", "content": text}]
            arguments = {"messages": messages, "run_immediately": True}
            client.action({"service": "llm", "action": "append_to_messages", "arguments": as_list(arguments)})
        else:
            client.send_text(text, audio_response=False)

    def show(scene: str) -> None:
        if is_old:
            client.action({"service": "bot", "action": "show", "arguments": as_list({"scene": scene})})
        else:
            client.send_client_request("show", scene)

    with client.events(timeout=GUARD) as events, client:
        watch = Watch(events)
        watch.until(RTVIEvent.BOT_STOPPED_SPEAKING)
        for scene in SCENES[version]:
            show(scene.name)
            watch.until(scene.last, scene.where)
        for level in LEVELS[version]:
            type_in(f'call {level} {{"level": "{level}"}}')
            watch.until(RTVIEvent.BOT_TRANSCRIPT, partial(lambda quoted, data: quoted in data.text, f'"{level}"'))
        type_in('call old_client_tool {"q": 1}')
        watch.until(RTVIEvent.LLM_FUNCTION_CALL)
        if version != "1.14.0":
            client.describe_config()
            client.describe_actions()
            add = {"service": "bot", "action": "add", "arguments": as_list({"a": 1, "b": 2})}
            assert client.action(add).data == {"result": 3}
            client.update_config([{"service": "tts", "options": [{"name": "voice", "value": "another"}]}])
        if version == "1.14.0":
            type_in('call slow {"q": 1}')
            watch.until(RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS, lambda data: data.function_name == "slow")
            type_in("Stop")
            watch.until(RTVIEvent.LLM_FUNCTION_CALL_STOPPED, lambda data: data.cancelled)
            watch.until(RTVIEvent.BOT_OUTPUT, lambda data: data.text == "You said: Stop.")
        client.send_message(RTVIMessage("no-such-type", {}))
        watch.until(RTVIEvent.MESSAGE_ERROR)
    return watch.seen
