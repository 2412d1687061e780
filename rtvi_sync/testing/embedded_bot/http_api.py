"""HTTP interface of the embedded bot: the address of its WebSocket, and actions without a session."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from rtvi_sync.testing.embedded_bot.actions import ActionRegistry, NeverAnsweredError, read_call
from rtvi_sync.testing.embedded_bot.bot_version import BotVersion
from rtvi_sync.testing.embedded_bot.http_endpoint import BotRequest, HTTPResponse, NoResponseError
from rtvi_sync.testing.embedded_bot.llm_context import LLMContext
from rtvi_sync.testing.embedded_bot.messenger import Messenger
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.script import Message, message, written
from rtvi_sync.testing.embedded_bot.validation import InvalidMessageError, entries, field, invalid

_NOT_FOUND: Final = HTTPResponse(404, {"detail": "Not Found"})
# Servers of actions without a session are of the time of RTVI 0.3, and negotiate nothing.
_ACTION_VERSION: Final = BotVersion("0.3.0")


class BotAPI:
    """The responses to HTTP requests. Any thread may use it.

    Args:
        options: of the bot.
        ws_url: the WebSocket address in the responses.
    """

    def __init__(self, options: BotOptions, ws_url: str) -> None:
        self._options = options
        self._ws_url = ws_url
        self._bot_version = BotVersion(options.version)
        # Guards _requests. Held for a moment by the threads of requests and sessions, and by the test's threads.
        self._lock = threading.Lock()
        self._requests: list[BotRequest] = []

    @property
    def requests(self) -> list[BotRequest]:
        """Return every request so far, in order."""
        with self._lock:
            return list(self._requests)

    def requested_config(self, path: str) -> Any:
        """Return the config in the connect request that led a client to this path of the WebSocket, or None."""
        number = parse_qs(urlsplit(path).query).get("request", [""])[0]
        requests = self.requests
        if not number.isdecimal() or len(number) > 9 or int(number) >= len(requests):
            return None
        body = requests[int(number)].body
        return body.get("config") if isinstance(body, dict) else None

    def answer(self, request: BotRequest) -> HTTPResponse | Iterator[Message]:
        """Answer a request, with a document or message by message.

        Raises:
            NoResponseError: the request must stay unanswered.
        """
        with self._lock:
            number = len(self._requests)
            self._requests.append(request)
        endpoints = {"/connect", "/start"} | ({"/action"} if self._options.has_actions else set())
        if request.endpoint not in endpoints:
            return _NOT_FOUND
        if request.method != "POST":
            return HTTPResponse(405, {"detail": "Method Not Allowed"})
        if any(request.headers.get(name.lower()) != value for name, value in self._options.headers.items()):
            return HTTPResponse(401, {"detail": "Unauthorized"})
        if request.endpoint == "/connect":
            return self._connect(request, number)
        return self._start(request) if request.endpoint == "/start" else self._act(request)

    def _connect(self, request: BotRequest, number: int) -> HTTPResponse:
        has_config = isinstance(request.body, dict) and request.body.get("config") is not None
        if has_config and self._bot_version.accepts("update-config"):
            return HTTPResponse(200, {"ws_url": f"{self._ws_url}?request={number}"})
        return HTTPResponse(200, {"ws_url": self._ws_url})

    def _start(self, request: BotRequest) -> HTTPResponse:
        """Answer as the development runner of a bot framework does."""
        body = {} if request.body is None else request.body
        if not isinstance(body, dict):
            return HTTPResponse(500, {"detail": "Internal Server Error"})
        transport = body.get("transport", "websocket")
        if transport == "twilio":  # Pipecat's runner answers with the eval route to those that say they are a telephone
            return HTTPResponse(200, {"wsUrl": self._ws_url})
        if transport != "websocket":
            return HTTPResponse(400, {"detail": f"Transport {transport!r} is not allowed. This is a 'websocket' bot."})
        return HTTPResponse(200, {"wsUrl": self._ws_url, "sessionId": str(uuid.uuid4()), "token": None})

    def _act(self, request: BotRequest) -> HTTPResponse | Iterator[Message]:
        try:
            received = entries(request.body, "actions")
            if not received:
                raise invalid("actions", "List should have at least 1 item")
            for action in received:
                field(action, "id", str)
        except InvalidMessageError as error:
            return HTTPResponse(422, {"detail": str(error)})
        events = HTTPActionRun(self._options).events(received)
        accepted = request.headers.get("accept", "*/*")
        if self._options.action_stream and ("text/event-stream" in accepted or "*/*" in accepted):
            return events
        return HTTPResponse(200, next(events))


class HTTPActionRun:
    """A bot for the actions of one HTTP request, which writes and does not speak.

    Args:
        options: of the bot.
    """

    def __init__(self, options: BotOptions) -> None:
        self._context = LLMContext(options.replies)
        self._actions = ActionRegistry(options.actions or {}, self._context, self, quirks=options.quirks)
        self._wants_run = False

    def stop_speaking(self) -> None:
        """Do nothing: this bot does not speak."""

    def say(self, text: str) -> None:
        """Do nothing: this bot does not speak."""

    def respond(self) -> None:
        """Run the language model after all actions have been answered."""
        self._wants_run = True

    def events(self, received: list[Message]) -> Iterator[Message]:
        """Run the actions and yield their messages as they arise.

        Raises:
            NoResponseError: an action failed, in a bot that then sends nothing more.
        """
        answers: deque[Message] = deque()
        messenger = Messenger(_ACTION_VERSION, answers.append)
        for action in received:
            try:
                self._actions.perform(read_call(action), messenger)
            except InvalidMessageError as error:
                messenger.send_error_response(action, f"Invalid message: {error}")
            except NeverAnsweredError as error:
                raise NoResponseError from error
            yield from answers
            answers.clear()
        # Real servers end their bot with an action of their own, whose response is sent like the others.
        yield message("action-response", {"result": True}, "END")
        if self._wants_run:
            said = self._context.said
            reply = self._context.run(said)
            yield message("user-llm-text", {"text": said})
            yield message("bot-llm-started")
            yield from written(reply.text or "")
            yield message("bot-llm-stopped")
