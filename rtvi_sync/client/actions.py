"""The part of the client that calls the bot's actions."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from ..messages import RTVIMessage
from ..protocol.record import Record
from ..protocol.validation import NAME, from_mapping, iterable
from .base import DEFAULT_TIMEOUT, TIMEOUT, ClientBase, Timeout, payload_of

RTVIActionResponse: TypeAlias = RTVIMessage
"""The type of the result of `action()`. `.data["result"]` is any JSON."""


@attrs.frozen(eq=False, repr=False)
class ActionArgument(Record):
    """An argument of an action: its name and any JSON value."""

    name: str = attrs.field(validator=NAME)
    value: Any = None


_LIST = iterable('a list of {"name": ..., "value": ...}').or_none


def _arguments(value: Sequence[ActionArgument | Mapping[str, Any]] | None) -> tuple[ActionArgument, ...]:
    _LIST.check(arguments=value)
    return tuple(
        from_mapping(ActionArgument, argument, f"arguments[{index}]") for index, argument in enumerate(value or ())
    )


@attrs.frozen(eq=False, repr=False)
class RTVIActionRequestData(Record):
    """A call of an action.

    Attributes:
        service: Key of the service that has the action, such as "llm".
        action: The action's name. `describe_actions()` lists the names.
        arguments: The arguments. Mappings with `name` and `value` are accepted, too.
    """

    service: str = attrs.field(validator=NAME)
    action: str = attrs.field(validator=NAME)
    arguments: Sequence[ActionArgument | Mapping[str, Any]] = attrs.field(default=(), converter=_arguments)

    def as_message(self) -> RTVIMessage:
        """Return a new message that calls the action."""
        arguments = [attrs.asdict(argument, recurse=False) for argument in _arguments(self.arguments)]
        return RTVIMessage("action", {"service": self.service, "action": self.action, "arguments": arguments})


ActionLike: TypeAlias = RTVIActionRequestData | Mapping[str, Any]


def request_of(action: ActionLike) -> RTVIActionRequestData:
    """Return the call for the argument `action`.

    Raises:
        TypeError, ValueError: It is not an action.
    """
    return from_mapping(RTVIActionRequestData, action, "action")


class BotActions(ClientBase):
    """Actions of bots that have them: RTVI 0.3, and 1.x bots that kept them.

    Without a session, actions are single-turn requests to `params.endpoints.action`. Every message of the answer goes
    through the same handlers as in a session.
    """

    def describe_actions(self, timeout: Timeout = DEFAULT_TIMEOUT) -> RTVIMessage:
        """Request the list of the bot's actions. The event `actions_available` follows.

        Args:
            timeout (seconds): Limit of the call. Default: the client's `request_timeout`. None: no limit.

        Returns:
            The bot's message. `.data["actions"]` lists service, action, arguments and result type of each action.

        Raises:
            BotNotReadyError: There is no session with a ready bot.
            DisconnectedError: The session ended first.
            RequestTimeoutError: The answer did not arrive in time.
            RequestRejectedError: The bot refused the request.
            UnsupportedFeatureError: The bot's version has no actions.
            ProtocolError: The answer cannot be decoded.
        """
        return _checked(self._ask(RTVIMessage("describe-actions", {}), timeout))

    def action(self, action: ActionLike, timeout: Timeout = DEFAULT_TIMEOUT) -> RTVIActionResponse:
        """Call an action of the bot, and wait for the result.

        In a session, the events that the action causes may arrive later. Without a session, the call returns when the
        server's answer has ended. By then all events are queued.

        Args:
            action: An `RTVIActionRequestData`, or a mapping:
                ``{"service": "llm", "action": "run", "arguments": [{"name": "interrupt", "value": True}]}``.
            timeout (seconds): Limit of the whole call. Default: the client's `request_timeout`. None: no limit. Set a
                limit: a bot of RTVI 0.3 never answers an action that fails, or any action after it.

        Returns:
            The bot's message. `.data["result"]` is the result.

        Raises:
            RequestRejectedError: The bot or the server refused. `.status` is the server's status.
            RequestTimeoutError: No answer arrived in time. A session continues.
            BotNotReadyError: A session is being connected.
            ActionEndpointNotSetError: There is no session and no endpoint for actions.
            DisconnectedError: The session ended first, or the server cannot be reached or broke the connection.
            ProtocolError: The answer cannot be decoded, or the server's answer lacks the result.
            UnsupportedFeatureError: Bots of this version have no actions.
        """
        message = request_of(action).as_message()
        if self._life.has_session:
            return _checked(self._ask(message, timeout))
        return _checked(self._observe(message, lambda: self._ask_server(message, timeout)))

    def action_stream(
        self, action: ActionLike, timeout: Timeout = DEFAULT_TIMEOUT
    ) -> Generator[RTVIActionResponse, None, None]:
        """Call an action like `action()`, and yield each message of the server's answer as it arrives.

        In a session, only the result is yielded. Other effects of the action are events, which are delivered in any
        case. The first `next()` sends the request. Closing the iterator abandons it.

        Args:
            action: As for `action()`.
            timeout (seconds): Limit for each message. Default: the client's `request_timeout`. None: no limit.

        Raises:
            RTVIError: As `action()`, from `next()`. A refusal is raised after the server's other messages.
        """
        TIMEOUT.check(timeout=timeout)
        return self._action_stream(request_of(action).as_message(), timeout)

    def _action_stream(self, message: RTVIMessage, timeout: Timeout) -> Generator[RTVIActionResponse, None, None]:
        if self._life.has_session:
            yield _checked(self._ask(message, timeout))
        else:
            yield from self._stream_from_server(message, timeout)

    def _ask_server(self, message: RTVIMessage, timeout: Timeout) -> RTVIMessage:
        deadline = self._deadline(timeout)
        with self._life.http_action(message) as action:
            return action.result(deadline)

    def _stream_from_server(self, message: RTVIMessage, timeout: Timeout) -> Generator[RTVIActionResponse, None, None]:
        with self._life.http_action(message) as action:
            while (received := action.next_before(self._deadline(timeout))) is not None:
                yield received


def _checked(answer: RTVIMessage) -> RTVIMessage:
    payload_of(answer)
    return answer
