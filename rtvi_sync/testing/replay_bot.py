"""A bot that replays a recording: it sends what the bot of that session sent, when the client asks the same."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.media.levels import FLOOR
from rtvi_sync.media.pcm import rms
from rtvi_sync.protocol.frames import AudioRawFrame, InterruptionFrame
from rtvi_sync.protocol.validation import BOOL, PATH, PORT, WAIT, one_of
from rtvi_sync.recording.recording import Recording, frames_of
from rtvi_sync.testing.embedded_bot.bot import EmbeddedBot
from rtvi_sync.testing.embedded_bot.messages import NEWEST, Message
from rtvi_sync.testing.embedded_bot.session import CLOSE_CODE, BotSession

logger: logging.Logger = package_logger(__name__)

# Seconds without speech after which the user's next words are another question.
_PAUSE: Final = 0.5
# As many pieces of audio, of 20 ms, are shorter than such a pause, which a busy machine may shorten.
_PIECES: Final = 15
# Seconds between two looks whether the user is heard.
_LOOK: Final = 0.005
# What differs between two sessions though the client asks the same.
_VOLATILE: Final = frozenset({"id", "msg_id", "tool_call_id", "timestamp"})
_FAILED: Final = 1011
_NO_CALLS: Final = "A recording of a call is replayed over the WebSocket, too: connect() without transport="


@attrs.frozen
class Mismatch:
    """Something that the client did otherwise than in the recording.

    Attributes:
        t: when it was sent there, in seconds since that began.
        expected: the message there; None: the user was heard.
        received: the client's message, of the same type and with other data; None: none came in time.
    """

    t: float
    expected: Message | None
    received: Message | None = None


@attrs.frozen
class _ReplayStep:
    """One thing that happens in a replay.

    Attributes:
        t: when, in seconds since the recording began.
        kind: "message" or "speech" of the client, which are waited for; or what the bot does.
        what: the message, the audio frame, or the row.
    """

    t: float
    kind: Literal["message", "speech", "send", "frame", "interrupt", "end"]
    what: Any = None


class ReplayBot:
    """A bot on the loopback interface that behaves as the one in a recording. Use it as a context manager.

        with ReplayBot("talk.jsonl") as bot, connect(bot.base_url, mic=False, speaker=False) as client:
            print(client.ask("Hello").bot_text)

    What the bot sent is sent again, counted from the last message of the client that was matched, and before the first
    one from `client-ready`. Each session replays the recording from its beginning. A recording of a telephone call is
    replayed over the WebSocket, too: `connect(bot.ws_url)`. Calls are refused.

    Args:
        path: either file of the recording.
        pace: "recorded": at the recorded times; "fast": at once.
        match: what a message of the client must have to be the one in the recording: "content": the same type and
            data, without ids and times; "type": the same type; "none": nothing is waited for.
        strict: close the connection (1011) at the first mismatch. Otherwise the replay goes on.
        timeout: seconds to wait for each message of the client.
        port: port for HTTP; 0 takes any free one.

    Raises:
        OSError, ValueError: The recording cannot be read; see `Recording.load()`.

    Attributes:
        mismatches: what clients did otherwise, in the order in which it was noted.
        done: a replay has sent everything.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pace: Literal["recorded", "fast"] = "recorded",
        match: Literal["content", "type", "none"] = "content",
        strict: bool = False,
        timeout: float = 10.0,
        port: int = 0,
    ) -> None:
        PATH.check(path=path)
        one_of("recorded", "fast").check(pace=pace)
        one_of("content", "type", "none").check(match=match)
        BOOL.check(strict=strict)
        WAIT.check(timeout=timeout)
        PORT.check(port=port)
        recording = Recording.load(path)
        self._steps: Final = _steps_of(recording, waits=match != "none")
        self._is_fast: Final = pace == "fast"
        self._compares_data: Final = match == "content"
        self._strict: Final = strict
        self._timeout: Final = timeout
        self.mismatches: list[Mismatch] = []
        self.done: bool = False
        self._replays: dict[BotSession, _SessionReplay] = {}  # changed in single steps, by the threads of sessions
        self._bot = EmbeddedBot(
            version=recording.rtvi or NEWEST, handler=self._received, speech_threshold=math.inf, port=port
        )
        self._bot._refuses_calls = _NO_CALLS

    @property
    def base_url(self) -> str:
        """Return "http://host:port", once started."""
        return self._bot.base_url

    @property
    def ws_url(self) -> str:
        """Return "ws://host:port/ws", once started."""
        return self._bot.ws_url

    def start(self) -> None:
        """Start to listen.

        Raises:
            OSError: The port is in use.
            RuntimeError: The bot is running already.
        """
        self._bot.start()

    def stop(self) -> None:
        """End all sessions and threads."""
        self._bot.stop()
        for replay in [*self._replays.values()]:
            replay.join()

    def __enter__(self) -> ReplayBot:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _received(self, session: BotSession, message: Message) -> bool:
        """Take a message of a client, which the embedded bot then leaves alone."""
        replay = self._replays.get(session)
        if replay is None:
            replay = self._replays[session] = _SessionReplay(self, session)
        replay.take(message)
        return True


class _SessionReplay:
    """The replay of a recording in one session, on a thread of its own from the first message on."""

    def __init__(self, bot: ReplayBot, session: BotSession) -> None:
        self._bot = bot
        self._session = session
        # Guards the messages, and wakes the replay. Held for a moment by the session's thread and by the replay.
        self._changed = threading.Condition()
        self._messages: deque[tuple[float, Message]] = deque()
        self._ids: dict[str, str] = {}  # the client's, by those in the recording
        self._heard = 0  # pieces of the user's audio that were looked at
        self._silent = _PIECES  # those without speech, since the last one with it
        self._cue = (0.0, monotonic())  # the last matched message: its time in the recording, and now
        self._thread = start_thread("bot-replay", self._run)

    def take(self, message: Message) -> None:
        """Take a message of the client."""
        with self._changed:
            self._messages.append((monotonic(), message))
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the thread has ended, whose session has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            for step in self._bot._steps:
                if step.kind in ("message", "speech"):
                    self._await(step)
                else:
                    self._pause(step)
                    self._do(step)
        except DisconnectedError:
            return
        self._bot.done = True

    # -- what the client does -----------------------------------------------------------------------------------------

    def _await(self, step: _ReplayStep) -> None:
        """Wait for what the client did here in the recording. If it is that, all further times count from it.

        Raises:
            DisconnectedError: The session has ended, or this is the end of it.
        """
        at, received, is_same = self._next_message(step) if step.kind == "message" else self._next_speech()
        if at is not None:
            self._cue = step.t, at
        if is_same:
            return
        self._bot.mismatches.append(Mismatch(step.t, step.what, received))
        if self._bot._strict:
            self._session.close(_FAILED, "The client did otherwise than in the recording")
            raise DisconnectedError("The replay is over", initiator="server")

    def _next_message(self, step: _ReplayStep) -> tuple[float | None, Message | None, bool]:
        """Return when the message of a step came, what it is, and whether it has the same data."""
        deadline = monotonic() + self._bot._timeout
        with self._changed:
            while True:
                same_type = [entry for entry in self._messages if entry[1].get("type") == step.what.get("type")]
                # The first message says what the client runs on.
                by_type = not self._bot._compares_data or _is_hello(step)
                exact = [entry for entry in same_type if by_type or _is_same(entry[1], step.what)]
                for entry in (*exact, *same_type)[:1]:
                    self._messages.remove(entry)
                    at, message = entry
                    if isinstance(known := step.what.get("id"), str) and isinstance(new := message.get("id"), str):
                        self._ids[known] = new
                    return at, message, bool(exact)
                if (left := deadline - monotonic()) <= 0:
                    return None, None, False
                self._changed.wait(min(left, 0.1))
                self._check_open()

    def _next_speech(self) -> tuple[float | None, Message | None, bool]:
        """Return when the user was heard, if so in time."""
        deadline = monotonic() + self._bot._timeout
        while monotonic() < deadline:
            for piece in self._session._audio[self._heard :]:
                self._heard += 1
                is_voice, silent = rms(piece) >= FLOOR, self._silent
                self._silent = 0 if is_voice else silent + 1
                if is_voice and silent >= _PIECES:
                    return monotonic(), None, True
            self._check_open()
            self._wait(_LOOK)
        return None, None, False

    def _check_open(self) -> None:
        if (end := self._session.ended) is not None:
            raise end

    # -- what the bot does --------------------------------------------------------------------------------------------

    def _pause(self, step: _ReplayStep) -> None:
        """Wait until it is time for a step."""
        t, began = self._cue
        while not self._bot._is_fast and (left := began + step.t - t - monotonic()) > 0:
            self._wait(left)
            self._check_open()

    def _wait(self, seconds: float) -> None:
        threading.Event().wait(min(seconds, 0.1))

    def _do(self, step: _ReplayStep) -> None:
        session = self._session
        if step.kind == "send":
            session.send(self._with_ids(step.what))
        elif step.kind == "frame":
            session.send_frame(step.what)
        elif step.kind == "interrupt":
            session.send_frame(InterruptionFrame())
        elif step.what.get("initiator") == "server":
            code = step.what.get("code")  # 1005 stands for a close frame without a code
            session.close(code if CLOSE_CODE.has_type(code) and CLOSE_CODE.has_value(code) else 1000)

    def _with_ids(self, value: Any) -> Any:
        """Return a message with the client's ids in place of those in the recording."""
        if isinstance(value, dict):
            return {
                name: self._ids.get(each, each) if name in _VOLATILE and isinstance(each, str) else self._with_ids(each)
                for name, each in value.items()
            }
        return [self._with_ids(each) for each in value] if isinstance(value, list) else value


def _steps_of(recording: Recording, *, waits: bool) -> tuple[_ReplayStep, ...]:
    """Return what happens in a replay, in order: `client-ready` first, then all rows behind it."""
    steps = sorted(_all_steps(recording), key=lambda step: step.t)
    if not any(step.kind == "send" and step.what.get("type") == "bot-ready" for step in steps):
        # The recording began when the bot was ready already.
        data = recording._bot_row
        ready = {"version": recording.rtvi, "about": data.get("about"), "capabilities": data.get("capabilities")}
        message = {"label": "rtvi-ai", "type": "bot-ready", "id": "0", "data": ready}
        hello = {"label": "rtvi-ai", "type": "client-ready", "id": "0"}
        steps = [_ReplayStep(0.0, "message", hello), _ReplayStep(0.0, "send", message), *steps]
    first = next((step for step in steps if _is_hello(step)), None)
    return tuple(
        step
        for step in steps
        if step is first or (not _is_hello(step) and (waits or step.kind not in ("message", "speech")))
    )


def _is_hello(step: _ReplayStep) -> bool:
    return step.kind == "message" and step.what.get("type") == "client-ready"


def _all_steps(recording: Recording) -> Iterator[_ReplayStep]:
    for row in recording.rows:
        kind, t, message = row["kind"], row.get("t", 0.0), row.get("message")
        if kind == "message" and isinstance(message, dict):
            yield _ReplayStep(t, "message" if row.get("dir") == "out" else "send", message)
        elif kind == "interruption":
            yield _ReplayStep(t, "interrupt")
        elif kind == "end":
            yield _ReplayStep(t, "end", row)
    yield from _bot_frames(recording)
    yield from _speeches(recording)


def _bot_frames(recording: Recording) -> Iterator[_ReplayStep]:
    audio = recording.audio()
    for at, pcm in frames_of(recording, "in", audio.pcm):
        yield _ReplayStep(at, "frame", AudioRawFrame(audio=pcm, sample_rate=audio.sample_rate_hz))


def _speeches(recording: Recording) -> Iterator[_ReplayStep]:
    """Yield the moments at which the user began to speak."""
    last = -math.inf
    for at, pcm in frames_of(recording, "out", recording.audio(side="user").pcm):
        if rms(pcm) >= FLOOR:
            if at - last > _PAUSE:
                yield _ReplayStep(at, "speech")
            last = at


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two messages of one type have the same data."""
    return bool(_without_volatile(one.get("data")) == _without_volatile(other.get("data")))


def _without_volatile(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_volatile(each) for name, each in value.items() if name not in _VOLATILE}
    return [_without_volatile(each) for each in value] if isinstance(value, list) else value
