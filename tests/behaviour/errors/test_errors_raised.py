"""Every error of the package, as a program meets it: raised through the interface, complete, and with a remedy."""

from __future__ import annotations

import inspect
import pickle
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

import rtvi_sync
from rtvi_sync import (
    CloseInfo,
    MemoryTransport,
    RTVIClient,
    RTVIError,
    RTVIMessage,
    TransportState,
    Turn,
    WebSocketTransport,
    errors,
)
from rtvi_sync.media import ScreenSource
from rtvi_sync.testing import scenarios
from tests.support.attempts import connect_within, timed_out
from tests.support.clients import bot_says, deaf_bot, memory_client, silent_bot, transport_of
from tests.support.forking import in_child
from tests.support.http_server import Answer, scripted_server
from tests.support.threads import InThread
from tests.support.waiting import until

ACTION = {"service": "llm", "action": "run"}


def refusing_bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
    """Yield a bot with a config and actions that refuses all requests."""
    if message.type == "client-ready":
        yield RTVIMessage("bot-ready", {"version": "1.0.0", "config": []}, message.id)
    else:
        yield RTVIMessage("error-response", {"error": "not today"}, message.id)


def saying(type_: str, data: Any) -> Callable[[MemoryTransport, RTVIMessage], Any]:
    """Return a bot that says one thing."""
    return lambda transport, message: [RTVIMessage(type_, data, message.id)]


def raised_by(call: Callable[[], object]) -> RTVIError:
    """Return the error that `call()` raises."""
    with pytest.raises(RTVIError) as caught:
        call()
    return caught.value


def connected(bot: Any, call: Callable[[RTVIClient], object]) -> RTVIError:
    """Return the error of a call in a session with `bot`, which continues."""
    with memory_client(bot) as client:
        error = raised_by(lambda: call(client))
        assert client.state is TransportState.READY
        return error


# -- one function for each way to meet an error: it returns the error -------------------------------------------------


def no_base_url() -> RTVIError:
    return raised_by(lambda: RTVIClient().construct_url("connect"))


def closed_for_good() -> RTVIError:
    client = memory_client()
    client.close()
    return raised_by(client.connect)


def a_helper_without_a_client() -> RTVIError:
    return raised_by(rtvi_sync.LLMHelper().run)


def a_bot_that_is_never_ready() -> RTVIError:
    return timed_out("bot-ready", partial(connect_within, memory_client(silent_bot)))


def a_server_that_refuses() -> RTVIError:
    with scripted_server() as server:
        server.answers["/connect/"] = Answer({"info": "no seat"}, 503)
        return raised_by(memory_client(params={"base_url": server.url}).connect)


def a_server_that_is_not_there() -> RTVIError:
    return raised_by(memory_client(params={"base_url": "http://127.0.0.1:1"}).connect)


def a_handler_that_aborts() -> RTVIError:
    def handler(params: Any, timeout: Any, abort: rtvi_sync.AbortController) -> NoReturn:
        abort.abort()
        abort.signal.raise_if_aborted()
        raise AssertionError

    return raised_by(memory_client(custom_connect_handler=handler).connect)


def a_bot_that_is_not_there() -> RTVIError:
    return raised_by(RTVIClient(transport=WebSocketTransport("ws://127.0.0.1:1"), enable_mic=False).connect)


def a_session_that_ends() -> RTVIError:
    with memory_client(deaf_bot) as client:
        waiting = InThread(lambda: client.send_client_request("ask"))
        until(lambda: len(transport_of(client).sent) == 2)
        transport_of(client).end(CloseInfo(code=1012, reason="restart", initiator="server"))
        return raised_by(waiting.get)


def a_bot_that_breaks() -> RTVIError:
    return raised_by(memory_client(saying("error", {"error": "no memory", "fatal": True})).connect)


def no_session() -> RTVIError:
    return raised_by(lambda: memory_client().send_text("x"))


def a_second_connect() -> RTVIError:
    return connected(deaf_bot, lambda client: client.connect())


def no_answer() -> RTVIError:
    return connected(deaf_bot, lambda client: client.send_client_request("ask", timeout=0.02))


def no_event() -> RTVIError:
    return connected(deaf_bot, lambda client: client.wait_for("metrics", timeout=0.02))


def no_event_of_a_stream() -> RTVIError:
    return connected(deaf_bot, lambda client: next(client.events("metrics", timeout=0.02)))


def a_request_refused() -> RTVIError:
    return connected(refusing_bot, lambda client: client.send_client_request("ask"))


def an_action_refused() -> RTVIError:
    return connected(refusing_bot, lambda client: client.action(ACTION))


def a_server_that_refuses_an_action() -> RTVIError:
    with scripted_server() as server:
        server.answers["/action/"] = Answer({"detail": "broken"}, 500)
        return raised_by(lambda: RTVIClient(params={"base_url": server.url}).action(ACTION))


def an_update_refused() -> RTVIError:
    return connected(refusing_bot, lambda client: client.update_config([]))


def a_long_message() -> RTVIError:
    return connected(deaf_bot, lambda client: client.send_text("x" * 2_000_000))


def a_large_file() -> RTVIError:
    return connected(deaf_bot, lambda client: client.send_file(bytes(2_000_000)))


def an_action_without_an_endpoint() -> RTVIError:
    return raised_by(lambda: RTVIClient().action(ACTION))


def an_action_of_a_new_bot() -> RTVIError:
    return connected(deaf_bot, lambda client: client.action(ACTION))


def keys_of_an_old_bot() -> RTVIError:
    return connected(refusing_bot, lambda client: client.send_dtmf("1"))


def a_feature_that_was_left_out() -> RTVIError:
    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
        if message.type == "client-ready":
            yield RTVIMessage("bot-ready", {"version": "1.0.0", "config": []}, message.id)
        else:
            yield RTVIMessage("error-response", {"error": f"Unsupported type {message.type}"}, message.id)

    return connected(bot, lambda client: client.describe_actions())


def a_camera_without_video() -> RTVIError:
    return raised_by(lambda: memory_client().enable_cam(True))


def no_transport() -> RTVIError:
    return raised_by(RTVIClient().connect)


def no_address() -> RTVIError:
    return raised_by(RTVIClient(transport=WebSocketTransport(), enable_mic=False).connect)


def a_recording_in_no_folder() -> RTVIError:
    client = RTVIClient(transport=WebSocketTransport("ws://127.0.0.1:1"), mic=False, speaker=Path("/no/folder/a.wav"))
    return raised_by(client.connect)


def a_bot_that_makes_no_sense() -> RTVIError:
    return raised_by(memory_client(saying("bot-ready", "hello")).connect)


def a_config_of_another_shape() -> RTVIError:
    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
        if message.type == "client-ready":
            yield RTVIMessage("bot-ready", {"version": "0.3.0", "config": []}, message.id)
        else:
            yield RTVIMessage("config", {"config": "none"}, message.id)

    return connected(bot, lambda client: client.get_config())


def a_handler_that_waits() -> RTVIError:
    found: list[RTVIError] = []
    with memory_client() as client:
        client.on("server_message", lambda: found.append(raised_by(lambda: client.wait_for("metrics"))))
        bot_says(client, "server-message", 1)
        until(lambda: found)
    return found[0]


def a_forked_child() -> RTVIError:
    with memory_client() as client:
        error = in_child(lambda: raised_by(lambda: client.send_text("x")))
    assert isinstance(error, RTVIError)
    return error


def a_package_that_is_not_installed() -> RTVIError:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "mss", None)  # as an import that fails leaves it
        return raised_by(ScreenSource)


def an_answer_that_was_not_expected() -> RTVIError:
    turn = Turn(number=1, session=1, initiator="user", status="complete", bot_text="snow")
    return raised_by(lambda: turn.expect(contains="rain"))


def a_misspelt_key() -> RTVIError:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "calls.yaml")
        file.write_text("name: calls\nturn: []\n", encoding="utf-8")
        return raised_by(lambda: scenarios.load(file))


#: Each class with a function that provokes it, and a word of the advice in its message.
WAYS: list[tuple[type[RTVIError], Callable[[], RTVIError], str]] = [
    (errors.RTVIError, no_base_url, "set client.params.base_url"),
    (errors.RTVIError, closed_for_good, "make a new one"),
    (errors.RTVIError, a_helper_without_a_client, "call client.register_helper"),
    (errors.ExpectationError, an_answer_that_was_not_expected, "expected the bot to say 'rain'"),
    (errors.ConnectionTimeoutError, a_bot_that_is_never_ready, r"raise the limit \(connect_timeout"),
    (errors.StartBotError, a_server_that_refuses, "See the server's log"),
    (errors.StartBotError, a_server_that_is_not_there, "Check the URL"),
    (errors.StartBotError, a_handler_that_aborts, "aborted"),
    (errors.TransportStartError, a_bot_that_is_not_there, "Check the URL"),
    (errors.DisconnectedError, a_session_that_ends, r"call connect\(\)"),
    (errors.BotError, a_bot_that_breaks, "See the bot's log"),
    (errors.BotNotReadyError, no_session, r"call connect\(\) first"),
    (errors.BotAlreadyStartedError, a_second_connect, r"call disconnect\(\)"),
    (errors.RequestTimeoutError, no_answer, "larger timeout"),
    (errors.RequestTimeoutError, no_event, "larger timeout"),
    (errors.RequestTimeoutError, no_event_of_a_stream, "larger timeout"),
    (errors.RequestRejectedError, a_request_refused, "See the bot's log"),
    (errors.RequestRejectedError, an_action_refused, "See the bot's log"),
    (errors.RequestRejectedError, a_server_that_refuses_an_action, "See the server's log"),
    (errors.ConfigUpdateError, an_update_refused, r"describe_config\(\)"),
    (errors.MessageTooLargeError, a_long_message, "Send less"),
    (errors.MessageTooLargeError, a_large_file, "send its URL"),
    (errors.ActionEndpointNotSetError, an_action_without_an_endpoint, "set client.params"),
    (errors.UnsupportedFeatureError, an_action_of_a_new_bot, r"send_client_request\(\)"),
    (errors.UnsupportedFeatureError, keys_of_an_old_bot, "Update the bot"),
    (errors.UnsupportedFeatureError, a_feature_that_was_left_out, "Add the feature to the bot"),
    (errors.UnsupportedFeatureError, a_camera_without_video, "Use one that carries video"),
    (errors.InvalidTransportParamsError, no_transport, "pass RTVIClient"),
    (errors.InvalidTransportParamsError, no_address, "ws_url"),
    (errors.DeviceError, a_recording_in_no_folder, "create it first"),
    (errors.ProtocolError, a_bot_that_makes_no_sense, "Check that the server is an RTVI bot"),
    (errors.ProtocolError, a_config_of_another_shape, "Check the code of the bot"),
    (errors.WouldDeadlockError, a_handler_that_waits, "Wait on another thread"),
    (errors.ForkedProcessError, a_forked_child, "connect a client in the child process"),
    (errors.ScenarioFileError, a_misspelt_key, r"calls\.yaml:2:1: .*did you mean 'turns'"),
    (errors.MissingExtraError, a_package_that_is_not_installed, r"install .*\[screen\]"),
]

#: Attributes of an error in addition to its text, by way; errors without any are left out.
ATTRIBUTES: dict[Callable[[], RTVIError], dict[str, Any]] = {
    a_bot_that_is_never_ready: {"phase": "bot-ready"},
    a_server_that_refuses: {"status": 503},
    a_session_that_ends: {"code": 1012, "reason": "restart", "initiator": "server"},
    a_bot_that_breaks: {"fatal": True},
    a_server_that_refuses_an_action: {"status": 500, "response": None},
    an_action_of_a_new_bot: {"feature": "actions", "needed_version": "before 2.0", "bot_version": "2.2.0"},
    keys_of_an_old_bot: {"feature": "dtmf", "needed_version": "2.0 or later", "bot_version": "1.0.0"},
    a_feature_that_was_left_out: {"feature": "actions", "needed_version": None, "bot_version": "1.0.0"},
    a_camera_without_video: {"feature": "cam", "needed_version": None, "bot_version": None},
    a_recording_in_no_folder: {"devices": ("speaker",), "type": "not-found"},
    a_misspelt_key: {"line": 2, "column": 1, "others": ()},
    a_package_that_is_not_installed: {"extra": "screen"},
}
BUILT_IN = {
    errors.ConnectionTimeoutError: TimeoutError,
    errors.RequestTimeoutError: TimeoutError,
    errors.DisconnectedError: ConnectionError,
    errors.MissingExtraError: ImportError,
    errors.ExpectationError: AssertionError,
    errors.ScenarioFileError: ValueError,
}


def test_every_error_is_here() -> None:
    """The table has every class of the package's errors, and each is exported."""
    classes = {thing for thing in vars(errors).values() if inspect.isclass(thing) and issubclass(thing, RTVIError)}
    bases = {errors.ConnectError, errors.SessionError, errors.UsageError}  # to be caught, never raised themselves
    assert {type_ for type_, _, _ in WAYS} == classes - bases
    assert {type_.__name__ for type_ in classes} <= set(rtvi_sync.__all__)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(("type_", "way", "remedy"), WAYS, ids=[way.__name__ for _, way, _ in WAYS])
def test_raised(type_: type[RTVIError], way: Callable[[], RTVIError], remedy: str) -> None:
    """An error has exactly its class, a remedy and its attributes, and keeps them all in another process."""
    error = way()
    assert type(error) is type_
    assert isinstance(error, BUILT_IN.get(type_, RTVIError))
    assert re.search(remedy, str(error)), str(error)
    assert {name: getattr(error, name) for name in ATTRIBUTES.get(way, {})} == ATTRIBUTES.get(way, {})
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), vars(twin)) == (type_, str(error), vars(error))


@pytest.mark.parametrize("way", [a_request_refused, an_action_refused, an_update_refused])
def test_response(way: Callable[[], RTVIError]) -> None:
    """A refusal of the bot has its whole message."""
    error = way()
    assert isinstance(error, errors.RequestRejectedError)
    assert isinstance(error.response, RTVIMessage)
    assert (error.response.type, error.response.data) == ("error-response", {"error": "not today"})
