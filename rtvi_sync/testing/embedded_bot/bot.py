"""The embedded bot: a small RTVI server for tests, demonstrations and offline development."""

from __future__ import annotations

import ssl
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final

import attrs

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.errors import DisconnectedError, RequestTimeoutError
from rtvi_sync.net.urls import authority
from rtvi_sync.protocol.validation import NAME, PORT, WAIT, instance_of
from rtvi_sync.testing.embedded_bot.conversation import BotConversation
from rtvi_sync.testing.embedded_bot.messages import BotVersion
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.reply import PATTERN, FaultPlan, LLMContext, matches
from rtvi_sync.testing.embedded_bot.server import BotAPI, BotRequest, HTTPEndpoint
from rtvi_sync.testing.embedded_bot.services import LiveConfig
from rtvi_sync.testing.embedded_bot.session import BotSession, Connection, SessionState
from rtvi_sync.testing.provider_api import ProviderAPI

if TYPE_CHECKING:
    from rtvi_sync.testing.embedded_bot.websocket_server import WebSocketServer

# "Service restart": the close code of a server that stops.
_STOP_CODE: Final = 1012


@attrs.define(kw_only=True, eq=False)
class EmbeddedBot(BotOptions):
    """A real RTVI bot on the loopback interface, in threads of this process.

    It listens, detects the end of the user's speech by level, and answers. Transcripts and replies follow a script. Its
    voice is an echo of the user, or a tone for each word. It serves any number of clients, each with its own
    conversation. Use it as a context manager, or call `start()` and `stop()`.

        with EmbeddedBot(transcripts=["What time is it?"], replies=["Time to go."]) as bot:
            with connect(bot.base_url, text_only=True) as client:
                print(client.ask("What time is it?").bot_text)

    Attributes:
        transcripts: Transcripts of the user's speech, turn by turn, repeated from the first. By default, the transcript
            states the duration of the speech.
        replies: Answers to the user. A mapping of patterns to replies: the first pattern found in the user's words
            applies, in any case of letters. A list: replies turn by turn, repeated from the first. Or a function from
            the user's words to the reply. A reply is a string or a `Reply`. Without a matching reply the bot says "You
            said: ...". If the function raises, the bot's model fails after speech, and typed text gets an
            `error-response`.
        greeting: First words of the bot once it is ready, a string or a `Reply`.
        faults: Faults to inject, as `Fault` objects.
        on_request: Answers to `client-message` requests by their type: a value, or a function of the request's data. An
            exception of the function becomes an `error-response`. A request of any other type gets its data back.
        handler: Function of session and message, called for every RTVI message on the session's thread before the bot
            processes it. If it returns True, the bot ignores the message. An exception becomes an `error-response`.
        echo: True to answer speech with the user's own audio; False to answer with tones.
        audio_out_sample_rate_hz (hertz): Sample rate of the bot's audio. None: the rate of the user's first audio, or
            24000 if the bot speaks first.
        ready: False to leave `client-ready` unanswered.
        version: Protocol version of the bot: "0.3.0", "1.0.0" ... "2.2.0", or a later one. It decides which messages
            the bot understands and sends. With any other string, the bot behaves like the newest version, and sends the
            string as its version.
        metrics: True to send a `metrics` message before `bot-ready`.
        speech_threshold: RMS level, of 32768, from which audio counts as speech; `math.inf` ignores all audio.
        hangover (seconds): Silence that ends the user's utterance.
        config: Config of the bot's services, as ``[{"service", "options": [{"name", "value"}]}]``. Each session has a
            copy, `session.config`. Only bots of RTVI 0.3 and 1.x have a config.
        config_types: Types of options ("bool", "number", "string", "array", "object") by service and name, for options
            without a value and for options whose value in `config` doesn't show the type.
        on_config: Function of service, option and value, called on the session's thread before an option is set. If it
            raises, the option is not set.
        actions: Functions by ``"service:action"`` or ``(service, action)``. They run one after the other on their own
            thread, with the client's arguments by name; `describe-actions` lists names and types from their signatures.
            The return value is the result (True for None); an exception becomes an `error-response`. A bot with actions
            also has ``llm:get_context``, ``llm:set_context``, ``llm:append_to_messages``, ``llm:run``, ``tts:say`` and
            ``tts:interrupt``. A bot of RTVI 0.3 always has these, others also with an empty mapping. Only bots of 0.3
            and 1.x have actions in a session; over HTTP (`POST /action`), bots of every version do.
        action_stream: False to answer `POST /action` with one JSON document; True to send an event stream to clients
            that accept one.
        headers: Headers with values that each HTTP request must have; otherwise the response is 401.
        quirks: True to behave like Pipecat after an action raises or returns None: this action, all later ones and
            `append-to-context` stay unanswered.
        host: Address to listen on.
        port: Port for HTTP; 0 takes any free one. The WebSocket's port is always any free one.
        ssl_context: Server-side TLS context, which makes both HTTPS and WSS.
        provider_api: Server that receives the bot's requests to end telephone calls; None for no requests.
        base_url: `http://host:port`, once started. `POST /connect`, `/start` and `/action` are there.
        ws_url: `ws://host:port/ws`, once started. Every other path works too. The client's first message chooses the
            route: the text `eval-connect` opens the eval route; the first messages of a telephone provider (Twilio,
            Telnyx, Plivo, Exotel) open a telephone call, with `BotSession.call`; all other clients use protobuf.
    """

    host: str = attrs.field(default="127.0.0.1", validator=NAME)
    port: int = attrs.field(default=0, validator=PORT)
    ssl_context: ssl.SSLContext | None = attrs.field(
        default=None, validator=instance_of("an ssl.SSLContext", ssl.SSLContext).or_none
    )
    provider_api: ProviderAPI | None = attrs.field(
        default=None, validator=instance_of("a ProviderAPI", ProviderAPI).or_none
    )
    base_url: str = attrs.field(init=False, default="")
    ws_url: str = attrs.field(init=False, default="")
    _websocket_server: WebSocketServer | None = attrs.field(init=False, default=None, repr=False)
    _endpoint: HTTPEndpoint | None = attrs.field(init=False, default=None, repr=False)
    _api: BotAPI | None = attrs.field(init=False, default=None, repr=False)
    _fault_plan: FaultPlan = attrs.field(init=False, repr=False)
    # Guards _sessions, _new_sessions and _heard, and wakes threads that wait for them. Threads of sessions and of the
    # test hold it briefly.
    _changed: threading.Condition = attrs.field(init=False, factory=threading.Condition, repr=False)
    _sessions: list[BotSession] = attrs.field(init=False, factory=list, repr=False)
    # Bounded, because each session keeps its audio, and some applications never take sessions.
    _new_sessions: deque[BotSession] = attrs.field(init=False, factory=lambda: deque(maxlen=1000), repr=False)
    _heard: list[str] = attrs.field(init=False, factory=list, repr=False)

    @_fault_plan.default
    def _plan_of_faults(self) -> FaultPlan:
        return FaultPlan(self.faults)

    def start(self) -> EmbeddedBot:
        """Start listening, and return this object. `base_url` and `ws_url` are set when this returns.

        Raises:
            OSError: The port is in use.
            RuntimeError: The bot is already running.
        """
        # Importing `websockets` takes longer than importing this package, whose other tools do without it.
        from rtvi_sync.testing.embedded_bot.websocket_server import WebSocketServer

        if self._websocket_server is not None:
            raise RuntimeError("The bot is already running. Call stop() before start()")
        secure = "s" if self.ssl_context else ""
        self._websocket_server = WebSocketServer(self.host, self.ssl_context, self._serve)
        self.ws_url = f"ws{secure}://{authority(self.host, self._websocket_server.port)}/ws"
        self._api = BotAPI(self, self.ws_url)
        try:
            self._endpoint = HTTPEndpoint(self.host, self.port, self.ssl_context, self._api.answer)
        except BaseException:
            self.stop()
            raise
        self.base_url = f"http{secure}://{authority(self.host, self._endpoint.port)}"
        return self

    def stop(self, timeout: float = 5.0) -> None:
        """End all sessions (close code 1012) and all threads. Idempotent, and harmless before `start()`.

        Args:
            timeout (seconds): Limit of the call. It returns then, even if a session's `handler` still runs.
        """
        WAIT.check(timeout=timeout)
        deadline = monotonic() + timeout
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.stop(timeout)
        websocket_server, self._websocket_server = self._websocket_server, None
        if websocket_server is None:
            return
        closing = [start_thread("bot-close", session.close, _STOP_CODE) for session in self.sessions]
        close_deadline = min(deadline, monotonic() + 1.0)
        for thread in closing:
            thread.join(max(0.0, close_deadline - monotonic()))
        websocket_server.stop(max(0.0, deadline - monotonic()))
        for thread in closing:
            thread.join(max(0.0, deadline - monotonic()))

    @property
    def sessions(self) -> list[BotSession]:
        """Open sessions, oldest first."""
        with self._changed:
            return list(self._sessions)

    @property
    def requests(self) -> list[BotRequest]:
        """All HTTP requests since `start()`, oldest first."""
        return self._api.requests if self._api is not None else []

    def wait_for_session(self, timeout: float = 30.0) -> BotSession:
        """Wait for the next session that no earlier call returned, and return it. The session may have ended already.

        Raises:
            RequestTimeoutError: No client connected within `timeout` seconds.
        """
        WAIT.check(timeout=timeout)
        with self._changed:
            if not self._changed.wait_for(lambda: self._new_sessions, timeout):
                raise RequestTimeoutError(f"No client connected to the bot within {timeout:g} s")
            return self._new_sessions.popleft()

    @property
    def heard(self) -> list[str]:
        """The users' typed and spoken texts so far in all sessions, oldest first. A spoken text is complete."""
        with self._changed:
            return list(self._heard)

    def assert_heard(self, *patterns: str, timeout: float = 5.0) -> None:
        """Wait until the users' texts match these patterns in this order. Other texts may lie between.

        Args:
            patterns: Regular expressions, searched in a user's text in any case of letters.
            timeout (seconds): Limit of the wait.

        Raises:
            AssertionError: A pattern had no match within `timeout`. The text has the first such pattern, and all texts
                that the bot heard.
        """
        for pattern in patterns:
            PATTERN.check(pattern=pattern)
        WAIT.check(timeout=timeout)
        with self._changed:
            if not self._changed.wait_for(lambda: _missing(patterns, self._heard) is None, timeout):
                lines = [f"  {number}  {text!r}" for number, text in enumerate(self._heard, 1)]
                raise AssertionError(
                    f"Users did not say {_missing(patterns, self._heard)!r} within {timeout:g} s\n"
                    + "\n".join(["the bot heard:", *lines] if lines else ["the bot heard nothing"])
                )

    def __enter__(self) -> EmbeddedBot:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _note_heard(self, text: str) -> None:
        with self._changed:
            self._heard.append(text)
            self._changed.notify_all()

    def _serve(self, connection: Connection) -> None:
        state = SessionState(
            bot_version=BotVersion(self.version),
            config=LiveConfig(self.config, self.config_types, self.on_config),
            context=LLMContext(self.replies, self._note_heard),
            fault_plan=self._fault_plan,
            provider_url=lambda: self.provider_api.url if self.provider_api is not None else "",
        )
        session = BotSession(connection, state)
        requested = self._api.requested_config(connection.path) if self._api is not None else None
        conversation = BotConversation(session, state, self, requested)
        with self._changed:
            self._sessions.append(session)
            self._new_sessions.append(session)
            self._changed.notify_all()
        end = DisconnectedError("The bot failed; see its log", initiator="server")
        try:
            conversation.run()
        except DisconnectedError as error:
            end = error
        finally:
            with self._changed:
                self._sessions.remove(session)
            session.finish(end)
            conversation.close()
            session.release()


def _missing(patterns: Sequence[str], heard: Sequence[str]) -> str | None:
    """Return the first pattern that matches no text after the match of the pattern before it."""
    texts = iter(heard)
    return next((pattern for pattern in patterns if not any(matches(pattern, text) for text in texts)), None)
