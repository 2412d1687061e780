"""The tools by which a coding agent talks to its bot: one session at a time, and its last turn."""

from __future__ import annotations

import contextlib
import threading
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
from rtvi_sync.conversation.follow import about_bot
from rtvi_sync.media import NullSink
from rtvi_sync.net.urls import printable
from rtvi_sync.protocol.text import one_line
from rtvi_sync.protocol.validation import NAME, PATH, URL, number

from .agent_results import failure_result, turn_result
from .allowed_urls import AllowedURLs

# In seconds. A call must end, whatever the agent wishes.
_TIMEOUT: Final = number(0, 600)
# A value in milliseconds, as results have them, would be met by any turn.
_LATENCY: Final = number(0, 60).or_none.but("it is in seconds")
_DELAY: Final = number(0, 60).but("it is in seconds")

Result = dict[str, Any]
"""What a tool returns: plain data."""


class NoTurnError(RTVIError):
    """There is no turn to check."""


@attrs.define(eq=False)
class _AgentSession:
    """A client and its one session.

    Attributes:
        client: The client.
        url: Where its bot is, without secrets.
        recording: Of the session; None: it is not recorded.
        is_connecting: `connect()` has not returned yet.
        is_closed: `close()` was called, not the bot has ended it.
        armed: The barge-in whose answer no call has returned.
        last: The turn that was returned last; None: of the last question there is none yet.
        before: The number of the last turn before that question.
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
        """Return whether the session is there, or begins."""
        return self.is_connecting or self.client.connected

    @property
    def file(self) -> str | None:
        """Return the file with the recording; its audio is beside it."""
        return None if self.recording is None else str(self.recording.path)

    def wait(self, wait: Callable[[RTVIClient], Turn]) -> Result:
        """Wait for a turn, which is the last one then; if that fails, what there was of it is."""
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
        """Ask something, and wait for the answer. The turn before it is not the last one any more."""
        turns = self.client.turns()
        self.last, self.before = None, turns[-1].number if turns else 0
        result = self.wait(lambda client: client.ask(question, timeout))
        if result["status"] == "interrupted" and self.armed is not None:
            result["next"] = "listen(timeout) returns the answer to the barge-in"
        return result

    def last_turn(self) -> Turn:
        """Return the last turn, with what has come of it since.

        Raises:
            RTVIError: There is none.
        """
        last = self.last
        for turn in reversed(self.client.turns()):
            if turn.number > self.before if last is None else turn.number == last.number:
                return turn
        if last is None:
            raise NoTurnError("There is no turn yet")
        return last  # the client keeps 100

    def close(self) -> None:
        """End the session, and its recording."""
        self.is_closed = True
        self.client.close()
        if self.recording is not None:
            self.recording.close()


class AgentTools:
    """The tools. Each method blocks, returns plain data, and may be called on any thread; `hang_up()` and `close()`
    also end a call that waits.

    Args:
        allowed: The URLs that may be connected to.
        folder: Sessions are recorded there; None: they are not.
        options: Of `RTVIClient.for_url()`: the defaults of `connect()`, and what it has no argument for.
    """

    def __init__(self, allowed: AllowedURLs, folder: Path | None, options: Mapping[str, Any]) -> None:
        self._allowed = allowed
        self._folder = folder
        self._options = options
        # Guards `_session` and `_is_closed`, for the making of a client, and the `armed` of a session.
        self._lock = threading.Lock()
        self._session: _AgentSession | None = None
        self._is_closed = False
        self._recorded = 0

    # -- tools --------------------------------------------------------------------------------------------------------

    def connect(self, url: str, transport: str | None = None, token: str | None = None) -> Result:
        """Begin a session.

        Args:
            url: As of `RTVIClient.for_url()`, as the next two; it must be an allowed one.
            transport, token: None: as the server was started.

        Raises:
            BotAlreadyStartedError: There is a session.
            InvalidTransportParamsError: The URL is not allowed.
            RTVIError: As of `RTVIClient.connect()`.
            OSError: It cannot be recorded.
        """
        URL.check(url=url)
        self._allowed.check(url)
        given = {"transport": transport, "token": token}
        session = self._begin(url, {name: value for name, value in given.items() if value is not None})
        client = session.client
        try:
            session.recording = self._record(client)
            ready = client.connect()
            if isinstance(client.transport, EvalTransport):  # over which a client may demand to be told all of calls
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
            "next": "ask(text) types a question. A bot that speaks first is heard by listen(timeout)",
        }
        return connected if session.file is None else {**connected, "recording": session.file}

    def ask(self, text: str, timeout: float = 30.0) -> Result:
        """Type a question, and wait for the answer. Raises as `RTVIClient.ask()`."""
        NAME.check(text=text)
        _TIMEOUT.check(timeout=timeout)
        return self._begun().ask(text, timeout)

    def say_audio(self, path: str, timeout: float = 60.0) -> Result:
        """Say an audio file, and wait for the answer. Raises as `RTVIClient.ask()`."""
        PATH.check(path=path)
        _TIMEOUT.check(timeout=timeout)
        file = Path(path).absolute()
        if not file.is_file():  # a device or a pipe may block, or never end
            raise ValueError(f"path must be an audio file, and {file} is none")
        return self._begun().ask(file, timeout)

    def listen(self, timeout: float = 30.0) -> Result:
        """Wait for a turn that no other tool has returned: the answer to a barge-in that is armed, else what the bot
        says unasked. Raises as `PendingTurn.result()` and `RTVIClient.listen()`.
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
        """Arm a question that interrupts the bot, and return at once. It takes the place of one that was armed.

        Raises:
            BotNotReadyError: There is no session.
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
        """Check the last turn, as `Turn.expect()` does, which also says what is raised.

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
        """Return the last turn again, with what has come of it since.

        Raises:
            RTVIError: There is none.
        """
        session = self._begun()
        return turn_result(session.last_turn(), session.file)

    def hang_up(self) -> Result:
        """End the session. Calls that wait for the bot raise.

        Raises:
            BotNotReadyError: There is no session.
        """
        session = self._live()
        session.close()
        ended = {"hung_up": session.url, "turns": len(session.client.turns()), "next": "connect(url) begins a session"}
        return ended if session.file is None else {**ended, "recording": session.file}

    # -- the server's -------------------------------------------------------------------------------------------------

    def failure(self, error: BaseException) -> Result:
        """Return what a tool has raised, and what the agent can do next."""
        session = self._session
        return failure_result(error, self._next_step(error), None if session is None else session.file)

    def close(self) -> None:
        """End the session, if there is one, and begin no other. Calls that wait for the bot raise."""
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
            client.turns()  # from now on they have audio, and the latencies that are measured by it
            self._session = session = _AgentSession(client, printable(url))
        if before is not None:
            before.close()  # which the bot has ended
        return session

    def _record(self, client: RTVIClient) -> RecordingSession | None:
        """Start a recording under the first name that is free."""
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
            return "The timeline is what the bot did. Change the bot, or the expectation, and ask again"
        if isinstance(error, InvalidTransportParamsError):
            return "Pass another URL, or have the user allow this one: rtvi-sync mcp --allow-url URL"
        if isinstance(error, MissingExtraError):
            return "Have the user install it and start this server again"
        if isinstance(error, (DeviceError, MessageTooLargeError, TypeError, ValueError)):
            return "Call the tool again with other arguments"
        if self._session is None or not self._session.is_live:
            return "See that the bot runs, by `rtvi-sync doctor URL` in a shell for example, and call connect(url)"
        if isinstance(error, BotAlreadyStartedError):
            return "Use the session, or call hang_up"
        if isinstance(error, RequestTimeoutError):
            return "last_turn() has what came since. Ask again with a larger timeout, or hang_up and connect"
        return f"See the bot's log. hang_up and connect begin a new session ({one_line(self._session.url)})"
