"""The tools of a coding agent that tests its bot: one session at a time, and its last turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from rtvi_sync import (
    BotAlreadyStartedError,
    BotNotReadyError,
    DeviceError,
    EvalTransport,
    ExpectationError,
    InvalidTransportParamsError,
    MessageTooLargeError,
    MissingExtraError,
    PendingTurn,
    RecordingSession,
    RequestTimeoutError,
    RTVIClient,
    RTVIError,
    Turn,
)
from rtvi_sync.concurrency.lock import new_lock
from rtvi_sync.conversation.follow import about_bot
from rtvi_sync.media import NullSink
from rtvi_sync.net.urls import printable
from rtvi_sync.protocol.text import one_line
from rtvi_sync.protocol.validation import NAME, PATH, URL, number

from .agent_results import failure_result, turn_result
from .allowed_urls import AllowedURLs

# In seconds. A call must end even if the agent passes a larger limit.
_TIMEOUT: Final = number(0, 600)
# Any turn would meet a value in milliseconds, the unit of results.
_LATENCY: Final = number(0, 60).or_none.but("it is in seconds")
_DELAY: Final = number(0, 60).but("it is in seconds")

Result = dict[str, Any]
"""The result of a tool, as plain data."""


class NoTurnError(RTVIError):
    """There is no turn to check."""


@attrs.define(eq=False)
class _AgentSession:
    """A client and its one session.

    Attributes:
        client: The client.
        url: URL of its bot, without secrets.
        recording: Recording of the session; None if it is not recorded.
        is_connecting: True until `connect()` has returned.
        is_closed: True after `close()`, not after the bot ended the session.
        armed: Barge-in whose answer no call has returned.
        last: Last returned turn; None if the last question has none yet.
        before: Number of the last turn before that question.
    """

    client: RTVIClient
    url: str
    recording: RecordingSession | None = None
    is_connecting: bool = True
    is_closed: bool = False
    armed: PendingTurn | None = None
    last: Turn | None = None
    before: int = 0

    @property
    def is_live(self) -> bool:
        """True if the session is open or connecting."""
        return self.is_connecting or self.client.connected

    @property
    def file(self) -> str | None:
        """The file with the recording; its audio is beside it."""
        return None if self.recording is None else str(self.recording.path)

    def wait(self, wait: Callable[[RTVIClient], Turn]) -> Result:
        """Wait for a turn, and make it the last one. On a failure, the partial turn becomes the last one."""
        try:
            turn = wait(self.client)
        except RTVIError as error:
            if self.is_closed and isinstance(error, BotNotReadyError):  # its text is for programs, which have clients
                raise BotNotReadyError("There is no session. Call connect(url) first") from None
            self.last = getattr(error, "turn", None) or self.last
            raise
        self.last = turn
        return turn_result(turn, self.file)

    def ask(self, question: str | Path, timeout: float) -> Result:
        """Ask a question, and wait for the answer. The turn before it is then no longer the last one."""
        turns = self.client.turns()
        self.last, self.before = None, turns[-1].number if turns else 0
        result = self.wait(lambda client: client.ask(question, timeout))
        if result["status"] == "interrupted" and self.armed is not None:
            result["next"] = "listen(timeout) returns the answer to the barge-in"
        return result

    def last_turn(self) -> Turn:
        """Return the last turn, with its later events.

        Raises:
            RTVIError: There is none.
        """
        last = self.last
        for turn in reversed(self.client.turns()):
            if turn.number > self.before if last is None else turn.number == last.number:
                return turn
        if last is None:
            raise NoTurnError("There is no turn yet")
        return last  # the client keeps the last 100 turns

    def close(self) -> None:
        """End the session, and its recording."""
        self.is_closed = True
        self.client.close()
        if self.recording is not None:
            self.recording.close()


class AgentTools:
    """The tools. Each method blocks, returns plain data, and may be called on any thread. `hang_up()` and `close()`
    also end a waiting call.

    Args:
        allowed: URLs that the agent may connect to.
        folder: Folder for recordings of the sessions; None for no recordings.
        options: Options of `RTVIClient.for_url()`: defaults of `connect()`, and options that it doesn't take.
    """

    def __init__(self, allowed: AllowedURLs, folder: Path | None, options: Mapping[str, Any]) -> None:
        self._allowed = allowed
        self._folder = folder
        self._options = options
        # Guards `_session` and `_is_closed` during the creation of a client, and the `armed` of a session.
        self._lock = new_lock()
        self._session: _AgentSession | None = None
        self._is_closed = False
        self._recorded = 0

    # -- tools --------------------------------------------------------------------------------------------------------

    def connect(self, url: str, transport: str | None = None, token: str | None = None) -> Result:
        """Start a session.

        Args:
            url: URL as in `RTVIClient.for_url()`; it must be allowed.
            transport, token: As in `RTVIClient.for_url()`; None for the server's defaults.

        Raises:
            BotAlreadyStartedError: A session is open.
            InvalidTransportParamsError: The URL is not allowed.
            RTVIError: See `RTVIClient.connect()`.
            OSError: The session cannot be recorded.
        """
        URL.check(url=url)
        self._allowed.check(url)
        given = {"transport": transport, "token": token}
        session = self._begin(url, {name: value for name, value in given.items() if value is not None})
        client = session.client
        try:
            session.recording = self._record(client)
            ready = client.connect()
            if isinstance(client.transport, EvalTransport):  # on the eval route, a client may demand full reports
                client.transport.configure("full")
        except BaseException:
            session.close()
            raise
        finally:
            session.is_connecting = False
        connected = {
            "connected": session.url,
            "bot": about_bot(ready),
            "transport": client.transport.name if client.transport is not None else "",
            "next": "ask(text) types a question. listen(timeout) returns the words of a bot that speaks first",
        }
        return connected if session.file is None else {**connected, "recording": session.file}

    def ask(self, text: str, timeout: float = 30.0) -> Result:
        """Type a question, and wait for the answer. Raises like `RTVIClient.ask()`."""
        NAME.check(text=text)
        _TIMEOUT.check(timeout=timeout)
        return self._begun().ask(text, timeout)

    def say_audio(self, path: str, timeout: float = 60.0) -> Result:
        """Play an audio file to the bot, and wait for the answer. Raises like `RTVIClient.ask()`."""
        PATH.check(path=path)
        _TIMEOUT.check(timeout=timeout)
        file = Path(path).absolute()
        if not file.is_file():  # a device or a pipe may block, or never end
            raise ValueError(f"path must be an audio file, but {file} is not one")
        return self._begun().ask(file, timeout)

    def listen(self, timeout: float = 30.0) -> Result:
        """Wait for a turn that no other tool returned: the answer to an armed barge-in, or the bot's unasked words.

        Raises like `PendingTurn.result()` and `RTVIClient.listen()`.
        """
        _TIMEOUT.check(timeout=timeout)
        session = self._begun()
        with self._lock:  # only one call may wait for its result
            armed, session.armed = session.armed, None
        if armed is None:
            return session.wait(lambda client: client.listen(timeout))
        try:
            return session.wait(lambda _: armed.result(timeout))
        finally:
            with self._lock:
                if session.armed is None and not armed.done():
                    session.armed = armed

    def barge_in(self, text: str, after_s: float) -> Result:
        """Arm a question that interrupts the bot, and return at once. It replaces an armed one.

        Raises:
            BotNotReadyError: No session is open.
        """
        NAME.check(text=text)
        _DELAY.check(after_s=after_s)
        session = self._live()
        armed = session.client.barge_in(text, delay=after_s)
        with self._lock:
            before, session.armed = session.armed, armed
        if before is not None:
            before.cancel()
        return {
            "armed": text,
            "next": "Let the bot speak, by ask(text) for example, which returns the interrupted turn. Then "
            "listen(timeout) returns the answer to the barge-in",
        }

    def expect(
        self,
        contains: str | Sequence[str] | None = None,
        calls: Mapping[str, Mapping[str, Any] | None] | Sequence[str] | None = None,
        absent_calls: Sequence[str] = (),
        first_audio: float | None = None,
        interrupted: bool = False,
    ) -> Result:
        """Check the last turn. For the checks and errors, see `Turn.expect()`.

        Raises:
            RTVIError: There is no turn.
        """
        _LATENCY.check(first_audio=first_audio)
        session = self._begun()
        turn = session.last_turn()
        try:
            turn.expect(
                contains=contains,
                calls=calls,
                absent_calls=absent_calls,
                first_audio=first_audio,
                interrupted=interrupted,
            )
        except ExpectationError as error:
            if session.recording is not None:
                session.recording.mark(f"expect: {error.got}, not {error.expected}")
            raise
        return {"met": True, "turn": turn.number}

    def last_turn(self) -> Result:
        """Return the last turn again, with its later events.

        Raises:
            RTVIError: There is none.
        """
        session = self._begun()
        return turn_result(session.last_turn(), session.file)

    def hang_up(self) -> Result:
        """End the session. Calls that wait for the bot raise.

        Raises:
            BotNotReadyError: No session is open.
        """
        session = self._live()
        session.close()
        ended = {"hung_up": session.url, "turns": len(session.client.turns()), "next": "connect(url) starts a session"}
        return ended if session.file is None else {**ended, "recording": session.file}

    # -- the server's -------------------------------------------------------------------------------------------------

    def failure(self, error: BaseException) -> Result:
        """Return a tool's error, with the next step for the agent."""
        session = self._session
        return failure_result(error, self._next_step(error), None if session is None else session.file)

    def close(self) -> None:
        """End the session, if there is one, and prevent others. Calls that wait for the bot raise."""
        with self._lock:
            self._is_closed = True
        if self._session is not None:
            self._session.close()

    # -- internal -----------------------------------------------------------------------------------------------------

    def _begin(self, url: str, given: Mapping[str, Any]) -> _AgentSession:
        with self._lock:
            before = self._session
            if self._is_closed:
                raise RTVIError("The server ends. Start it again")
            if before is not None and before.is_live:
                raise BotAlreadyStartedError(f"There is a session with {before.url}. Call hang_up first")
            client = RTVIClient.for_url(url, **{**self._options, **given}, mic=False, speaker=NullSink())
            client.turns()  # starts the turn tracker, so that turns have audio, and latencies measured by it
            self._session = session = _AgentSession(client, printable(url))
        if before is not None:
            before.close()  # the bot has already ended it
        return session

    def _record(self, client: RTVIClient) -> RecordingSession | None:
        """Start a recording under the first free name."""
        while self._folder is not None:
            self._recorded += 1
            with contextlib.suppress(FileExistsError):
                return client.record(self._folder / f"session-{self._recorded}")
        return None

    def _begun(self) -> _AgentSession:
        """Return the last session, which may have ended."""
        if self._session is None:
            raise BotNotReadyError("There is no session. Call connect(url) first")
        return self._session

    def _live(self) -> _AgentSession:
        session = self._begun()
        if not session.is_live:
            raise BotNotReadyError("The session has ended. Call connect(url) first")
        return session

    def _next_step(self, error: BaseException) -> str:
        if isinstance(error, NoTurnError):
            return "Call ask(text) or listen(timeout) first"
        if isinstance(error, ExpectationError):
            return "The timeline shows the bot's actions. Change the bot or the expectation, and ask again"
        if isinstance(error, InvalidTransportParamsError):
            return "Pass another URL, or have the user allow this one: rtvi-sync mcp --allow-url URL"
        if isinstance(error, MissingExtraError):
            return "Have the user install it and start this server again"
        if isinstance(error, (DeviceError, MessageTooLargeError, TypeError, ValueError)):
            return "Call the tool again with other arguments"
        if self._session is None or not self._session.is_live:
            return "Check that the bot runs, for example by `rtvi-sync doctor URL` in a shell, and call connect(url)"
        if isinstance(error, BotAlreadyStartedError):
            return "Use the session, or call hang_up"
        if isinstance(error, RequestTimeoutError):
            return "last_turn() has the later events. Ask again with a larger timeout, or hang_up and connect"
        return f"See the bot's log. hang_up and connect start a new session ({one_line(self._session.url)})"
