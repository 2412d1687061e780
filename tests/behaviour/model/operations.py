"""The calls on a client, the time limit of each, and the errors that it may raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from rtvi_sync import Event, RTVIClient, RTVIEvent, RTVIMessage, errors

from .ears import Ears

CONNECT: Final = 0.4
REQUEST: Final = 0.05
#: For a request that must be answered, if nothing happens to the line.
AMPLE: Final = 3.0
WAIT: Final = 0.01
DISCONNECT: Final = 5.0
_LARGE: Final = "größer " * 10_000
_TOO_LARGE: Final = "x" * 1_100_000

_NO_BOT: Final = (errors.BotNotReadyError, errors.DisconnectedError)
_REQUEST_ERRORS: Final = (*_NO_BOT, errors.RequestTimeoutError, errors.RequestRejectedError)
_CONNECT_ERRORS: Final = (
    errors.ConnectionTimeoutError,
    errors.BotAlreadyStartedError,
    errors.StartBotError,
    errors.TransportStartError,
    errors.DisconnectedError,
    errors.BotError,
    errors.ProtocolError,
    errors.RTVIError,  # the client was closed for good
)
_WAIT_ERRORS: Final = (errors.RequestTimeoutError, errors.DisconnectedError)


@attrs.frozen
class Operation:
    """One call.

    Attributes:
        act: Function that makes the call; its arguments are the client and its listener.
        limit: Time limit, in seconds.
        errors: Errors that it may raise.
        lifecycle: True if it starts or ends a session.
        delivers: True if it calls handlers in manual mode.
        waits: True if it waits for an event, which it cannot inside a handler.
    """

    act: Callable[[RTVIClient, Ears], Any]
    limit: float = 0.0
    errors: tuple[type[errors.RTVIError], ...] = ()
    lifecycle: bool = False
    delivers: bool = False
    waits: bool = False


def _send(act: Callable[[RTVIClient], object], *more: type[errors.RTVIError]) -> Operation:
    return Operation(lambda client, _: act(client), errors=(*_NO_BOT, *more))


def _connect(act: Callable[[RTVIClient], object]) -> Operation:
    return Operation(lambda client, _: act(client), CONNECT, _CONNECT_ERRORS, lifecycle=True)


def _request(type_: str, data: Any, limit: float = REQUEST) -> Operation:
    def act(client: RTVIClient, _: Ears) -> Any:
        return client.send_client_request(type_, data, timeout=limit)

    return Operation(act, limit, _REQUEST_ERRORS)


def _wait(act: Callable[[RTVIClient], list[Event]]) -> Operation:
    return Operation(lambda client, _: act(client), WAIT, _WAIT_ERRORS, delivers=True, waits=True)


def _one(client: RTVIClient, event: str) -> list[Event]:
    return [client.wait_for(RTVIEvent(event), timeout=WAIT)]


def _some(client: RTVIClient, *events: str) -> list[Event]:
    with client.events(*events, timeout=WAIT) as stream:
        return [event for event, _ in zip(stream, range(3), strict=False)]


OPERATIONS: Final[dict[str, Operation]] = {
    "connect": _connect(lambda client: client.connect()),
    "connect(given)": _connect(lambda client: client.connect({})),
    "start_bot": _connect(lambda client: client.start_bot(client.construct_url("start"), timeout=CONNECT)),
    "start_bot_and_connect": _connect(
        lambda client: client.start_bot_and_connect(client.construct_url("start"), timeout=CONNECT)
    ),
    "disconnect": Operation(lambda client, _: client.disconnect(), DISCONNECT, lifecycle=True),
    "close": Operation(lambda client, _: client.close(), DISCONNECT, lifecycle=True),
    "disconnect_bot": attrs.evolve(_send(lambda client: client.disconnect_bot()), lifecycle=True),
    "send_text": _send(lambda client: client.send_text("Hello")),
    "send_client_message": _send(lambda client: client.send_client_message("note", {"volume": 11})),
    "send_client_message(flood)": _send(lambda client: client.send_client_message("flood")),
    "send_message": _send(lambda client: client.send_message(RTVIMessage("client-message", {"t": "note"}))),
    "send_text(too large)": _send(lambda client: client.send_text(_TOO_LARGE), errors.MessageTooLargeError),
    "request(echo)": _request("echo", "still there?", AMPLE),
    "request(large)": _request("echo", _LARGE),
    "request(never)": _request("never", None),
    "request(refuse)": _request("refuse", None),
    "wait_for(server-message)": _wait(lambda client: _one(client, "server-message")),
    "wait_for(disconnected)": _wait(lambda client: _one(client, "disconnected")),
    "wait_for(bot-ready)": _wait(lambda client: _one(client, "bot-ready")),
    "events()": _wait(lambda client: _some(client)),
    "events(transport-state-changed)": _wait(lambda client: _some(client, "transport-state-changed")),
    "process_events": Operation(
        lambda client, _: client.process_events(timeout=WAIT),
        WAIT,
        (errors.RTVIError, errors.WouldDeadlockError),  # not in manual mode; inside a handler
        delivers=True,
    ),
    "enable_mic(True)": Operation(lambda client, _: client.enable_mic(True)),
    "enable_mic(False)": Operation(lambda client, _: client.enable_mic(False)),
    "tracks": Operation(lambda client, _: client.tracks()),
    "stats": Operation(lambda client, _: client.stats()),
    "state": Operation(lambda client, _: (client.state, client.connected, repr(client))),
    "on": Operation(lambda client, ears: client.on("connected", ears.clumsy)),
    "once": Operation(lambda client, ears: client.once("transport-state-changed", ears.clumsy)),
    "off": Operation(lambda client, ears: client.off("connected", ears.clumsy)),
}
