"""The embedded bot: a small RTVI server for tests, demonstrations and development without a network."""

from __future__ import annotations

import ssl
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final

import attrs

from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.errors import DisconnectedError, MissingExtraError, RequestTimeoutError
from rtvi_sync.protocol.validation import NAME, PORT, WAIT, instance_of
from rtvi_sync.testing.embedded_bot.bot_version import BotVersion
from rtvi_sync.testing.embedded_bot.config import LiveConfig
from rtvi_sync.testing.embedded_bot.conversation import BotConversation
from rtvi_sync.testing.embedded_bot.http_api import BotAPI
from rtvi_sync.testing.embedded_bot.http_endpoint import BotRequest, HTTPEndpoint
from rtvi_sync.testing.embedded_bot.llm_context import LLMContext
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.session import BotSession, Connection, SessionState

if TYPE_CHECKING:
    from rtvi_sync.testing.embedded_bot.websocket_server import WebSocketServer

# "Service restart": what a server that is told to stop sends.
_STOP_CODE: Final = 1012


@attrs.define(kw_only=True, eq=False)
class EmbeddedBot(BotOptions):
    """A real RTVI bot on the loopback interface, in threads of this process.

    It listens, finds the end of what the user says by level, and answers: transcripts and replies from a script, and
    for a voice the user's own or a tone for each word. It takes any number of clients; each has a conversation of
    its own. Use it as a context manager, or call `start()` and `stop()`. It needs the extra `testing`.

        with EmbeddedBot(transcripts=["What time is it?"], replies=["Time to go."]) as bot:
            client.connect({"endpoint": f"{bot.base_url}/connect"})

    Attributes:
        transcripts: what the user is taken to say, turn by turn and again from the first; without a script the
            transcript tells how long the user spoke.
        replies: what the bot answers, turn by turn and again from the first, or a function from the user's words to
            the reply. Without it the bot says "You said: ...".
        on_request: answers to `client-message` requests by their type: a value, or a function of the request's data
            whose exception becomes an `error-response`. A type that is not there gets its data back.
        handler: called with session and message for every RTVI message, on the thread of the session, before the bot
            looks at it; what returns True is done with. An exception becomes an `error-response`.
        echo: True: what was spoken is answered with the user's own sound; False: with tones.
        audio_out_sample_rate_hz: rate of the bot's audio; None: that of the first audio heard from the user, or 24000
            if the bot speaks before.
        ready: False: `client-ready` is never answered.
        version: the protocol version that the bot speaks: "0.3.0", "1.0.0" ... "2.2.0", also one that is yet to come.
            It decides what the bot understands and sends. A string that is no version makes a bot of the newest one,
            which says that it is of this.
        metrics: True: a `metrics` message comes before `bot-ready`.
        speech_threshold: RMS, of 32768, from which sound counts as speech; `math.inf`: none does.
        hangover: seconds of quiet that end what the user says.
        config: what the bot's services are set to, as ``[{"service", "options": [{"name", "value"}]}]``; each session
            has a copy, `session.config`. Only bots of RTVI 0.3 and 1.x have a config.
        config_types: types of options ("bool", "number", "string", "array", "object") by service and name, where the
            value in `config` does not tell, and of options that have no value.
        on_config: called with service, option and value before an option is set, on the thread of the session; an
            exception refuses it.
        actions: functions by ``"service:action"`` or ``(service, action)``. They are called with the client's
            arguments by name, one after the other, on a thread of their own; `describe-actions` tells names and types
            from their signatures. What they return is the result (True for None); an exception is an
            `error-response`. A bot that has actions has ``llm:get_context``, ``llm:set_context``,
            ``llm:append_to_messages``, ``llm:run``, ``tts:say`` and ``tts:interrupt`` too; a bot of RTVI 0.3 has
            these in any case, others with an empty mapping. Only bots of 0.3 and 1.x have actions in a session; over
            HTTP, `POST /action`, every version has.
        action_stream: False: `POST /action` answers with one JSON document; True: with an event stream to clients
            that accept one.
        headers: headers that an HTTP request must have, with their values; without them the answer is 401.
        quirks: True: as bots of Pipecat, an action that raises or returns None is never answered, and neither is any
            later one; nor is `append-to-context`.
        host: address to listen on.
        port: port for HTTP; 0 takes any free one. The WebSocket's is always any free one.
        ssl_context: server-side context; makes both HTTPS and WSS.
        base_url: "http://host:port", once started. `POST /connect`, `/start` and `/action` are there.
        ws_url: "ws://host:port/ws", once started. Every other path works too.
    """

    host: str = attrs.field(default="127.0.0.1", validator=NAME)
    port: int = attrs.field(default=0, validator=PORT)
    ssl_context: ssl.SSLContext | None = attrs.field(
        default=None, validator=instance_of("an ssl.SSLContext", ssl.SSLContext).or_none
    )
    base_url: str = attrs.field(init=False, default="")
    ws_url: str = attrs.field(init=False, default="")
    _websocket_server: WebSocketServer | None = attrs.field(init=False, default=None, repr=False)
    _endpoint: HTTPEndpoint | None = attrs.field(init=False, default=None, repr=False)
    _api: BotAPI | None = attrs.field(init=False, default=None, repr=False)
    # Guards _sessions and _newcomers, and wakes who waits for a session. Held for a moment by the threads of sessions
    # and by the test's threads.
    _changed: threading.Condition = attrs.field(init=False, factory=threading.Condition, repr=False)
    _sessions: list[BotSession] = attrs.field(init=False, factory=list, repr=False)
    _newcomers: list[BotSession] = attrs.field(init=False, factory=list, repr=False)

    def start(self) -> None:
        """Listen; the addresses are known when this returns.

        Raises:
            MissingExtraError: the extra `testing` is not installed.
            OSError: the port is taken.
            RuntimeError: it is running already.
        """
        try:
            from rtvi_sync.testing.embedded_bot.websocket_server import WebSocketServer
        except ModuleNotFoundError as error:
            raise MissingExtraError("EmbeddedBot", "testing") from error
        if self._websocket_server is not None:
            raise RuntimeError("the bot is running already")
        secure = "s" if self.ssl_context else ""
        self._websocket_server = WebSocketServer(self.host, self.ssl_context, self._serve)
        self.ws_url = f"ws{secure}://{self.host}:{self._websocket_server.port}/ws"
        self._api = BotAPI(self, self.ws_url)
        try:
            self._endpoint = HTTPEndpoint(self.host, self.port, self.ssl_context, self._api.answer)
        except BaseException:
            self.stop()
            raise
        self.base_url = f"http{secure}://{self.host}:{self._endpoint.port}"

    def stop(self, timeout: float = 5.0) -> None:
        """End all sessions (close code 1012) and all threads. May be called twice, and before `start()`.

        Args:
            timeout: seconds after which it returns even if a session's `handler` still runs.
        """
        WAIT.check(timeout=timeout)
        deadline = time.monotonic() + timeout
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.stop(timeout)
        websocket_server, self._websocket_server = self._websocket_server, None
        if websocket_server is None:
            return
        closing = [start_thread("bot-close", session.close, _STOP_CODE) for session in self.sessions]
        polite_until = min(deadline, time.monotonic() + 1.0)
        for thread in closing:
            thread.join(max(0.0, polite_until - time.monotonic()))
        websocket_server.stop(max(0.0, deadline - time.monotonic()))
        for thread in closing:
            thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def sessions(self) -> list[BotSession]:
        """The live sessions, oldest first."""
        with self._changed:
            return list(self._sessions)

    @property
    def requests(self) -> list[BotRequest]:
        """Every HTTP request since `start()`, oldest first."""
        return self._api.requests if self._api is not None else []

    def wait_for_session(self, timeout: float = 30.0) -> BotSession:
        """Wait for a client that has connected, and that no earlier call returned; it may have left again.

        Raises:
            RequestTimeoutError: none came within `timeout` seconds.
        """
        WAIT.check(timeout=timeout)
        with self._changed:
            if not self._changed.wait_for(lambda: self._newcomers, timeout):
                raise RequestTimeoutError(f"no client connected within {timeout:g} s")
            return self._newcomers.pop(0)

    def __enter__(self) -> EmbeddedBot:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _serve(self, connection: Connection) -> None:
        state = SessionState(
            bot_version=BotVersion(self.version),
            config=LiveConfig(self.config, self.config_types, self.on_config),
            context=LLMContext(self.replies),
        )
        session = BotSession(connection, state)
        wished = self._api.wished_config(connection.path) if self._api is not None else None
        conversation = BotConversation(session, state, self, wished)
        with self._changed:
            self._sessions.append(session)
            self._newcomers.append(session)
            self._changed.notify_all()
        end = DisconnectedError("the bot failed", initiator="server")
        try:
            conversation.run()
        except DisconnectedError as error:
            end = error
        finally:
            with self._changed:
                self._sessions.remove(session)
            session.finish(end)
            conversation.close()
