"""A bot that replays a recording: when the client sends the same messages, the bot sends the recorded ones."""

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

# Seconds of silence after which the user's next words are another question.
_PAUSE: Final = 0.5
# This number of 20 ms pieces is shorter than such a pause, because a busy machine may shorten pauses.
_PIECES: Final = 15
# Seconds between two checks whether the user is heard.
_LOOK: Final = 0.005
# Fields that differ between two sessions although the client asks the same.
_VOLATILE: Final = frozenset({"id", "msg_id", "tool_call_id", "timestamp"})
_FAILED: Final = 1011
_NO_CALLS: Final = "A recording of a call is replayed over the WebSocket, too: connect() without transport="


@attrs.frozen
class Mismatch:
    """A difference between the client's behaviour and the recording.

    Attributes:
        t (seconds): Time of the recorded message, counted from the start of the recording.
        expected: The recorded message; None if the user's speech was expected.
        received: The client's message of the same type with other data; None if no message arrived in time.
    """

    t: float
    expected: Message | None
    received: Message | None = None


@attrs.frozen
class _ReplayStep:
    """One step of a replay.

    Attributes:
        t: Time in seconds since the start of the recording.
        kind: "message" or "speech" from the client, which the replay waits for; or an action of the bot.
        what: The message, audio frame or row.
    """

    t: float
    kind: Literal["message", "speech", "send", "frame", "interrupt", "end"]
    what: Any = None


class ReplayBot:
    """A loopback bot that behaves like the bot in a recording. Use it as a context manager.

        with ReplayBot("talk.jsonl") as bot, connect(bot.base_url, mic=False, speaker=False) as client:
            print(client.ask("Hello").bot_text)

    The bot sends the recorded messages and audio again. Their times count from the last matched message of the client,
    at first from `client-ready`. Each session replays the recording from the start. A recorded telephone call is also
    replayed over the WebSocket: `connect(bot.ws_url)`. The bot refuses telephone calls.

    Args:
        path: Either file of the recording.
        pace: "recorded" keeps the recorded times; "fast" sends without waiting.
        match: Condition for a client's message to match the recorded one. "content": same type and data, without ids
            and times. "type": same type. "none": the bot does not wait for messages.
        strict: True to close the connection (1011) at the first mismatch. Otherwise the replay continues.
        timeout (seconds): Limit of the wait for each message of the client.
        port: Port for HTTP; 0 takes any free one.

    Raises:
        OSError, ValueError: The recording cannot be read; see `Recording.load()`.

    Attributes:
        mismatches: Differences between clients and the recording, in the order of their detection.
        done: True after a replay has sent everything.
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
        self._replays: dict[BotSession, _SessionReplay] = {}  # changed in atomic steps by the threads of sessions
        self._bot = EmbeddedBot(
            version=recording.rtvi or NEWEST, handler=self._received, speech_threshold=math.inf, port=port
        )
        self._bot._refuses_calls = _NO_CALLS

    @property
    def base_url(self) -> str:
        """The bot's HTTP address, `http://host:port`, once started."""
        return self._bot.base_url

    @property
    def ws_url(self) -> str:
        """The bot's WebSocket address, `ws://host:port/ws`, once started."""
        return self._bot.ws_url

    def start(self) -> ReplayBot:
        """Start listening, and return this object.

        Raises:
            OSError: The port is in use.
            RuntimeError: The bot is already running.
        """
        self._bot.start()
        return self

    def stop(self) -> None:
        """End all sessions and threads."""
        self._bot.stop()
        for replay in [*self._replays.values()]:
            replay.join()

    def __enter__(self) -> ReplayBot:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _received(self, session: BotSession, message: Message) -> bool:
        """Handle a client's message; the embedded bot then ignores it."""
        replay = self._replays.get(session)
        if replay is None:
            replay = self._replays[session] = _SessionReplay(self, session)
        replay.take(message)
        return True


class _SessionReplay:
    """The replay of a recording in one session, on its own thread from the first message on."""

    def __init__(self, bot: ReplayBot, session: BotSession) -> None:
        self._bot = bot
        self._session = session
        # Guards the messages and wakes the replay. The session's thread and the replay hold it briefly.
        self._changed = threading.Condition()
        self._messages: deque[tuple[float, Message]] = deque()
        self._ids: dict[str, str] = {}  # the client's ids by the recorded ids
        self._heard = 0  # number of checked pieces of the user's audio
        self._silent = _PIECES  # number of silent pieces since the last speech
        self._cue = (0.0, monotonic())  # the last matched message: its recorded time, and the time of its arrival
        self._thread = start_thread("bot-replay", self._run)

    def take(self, message: Message) -> None:
        """Handle a message of the client."""
        with self._changed:
            self._messages.append((monotonic(), message))
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the thread of an ended session to end."""
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

    # -- client side ---------------------------------------------------------------------------------------------------

    def _await(self, step: _ReplayStep) -> None:
        """Wait for the client to act as in the recording. If it does, all later times count from this moment.

        Raises:
            DisconnectedError: The session has ended, or `strict` ends it here.
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
        """Return the arrival time of a step's message, the message, and whether its data is the same."""
        deadline = monotonic() + self._bot._timeout
        with self._changed:
            while True:
                same_type = [entry for entry in self._messages if entry[1].get("type") == step.what.get("type")]
                # The first message describes the client's platform.
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
        """Return when the user was heard, if in time."""
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

    # -- bot side ------------------------------------------------------------------------------------------------------

    def _pause(self, step: _ReplayStep) -> None:
        """Wait for the time of a step."""
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
        """Return a message with the recorded ids replaced by the client's ids."""
        if isinstance(value, dict):
            return {
                name: self._ids.get(each, each) if name in _VOLATILE and isinstance(each, str) else self._with_ids(each)
                for name, each in value.items()
            }
        return [self._with_ids(each) for each in value] if isinstance(value, list) else value


def _steps_of(recording: Recording, *, waits: bool) -> tuple[_ReplayStep, ...]:
    """Return the steps of a replay in order: `client-ready` first, then all later rows."""
    steps = sorted(_all_steps(recording), key=lambda step: step.t)
    if not any(step.kind == "send" and step.what.get("type") == "bot-ready" for step in steps):
        # The recording started after the bot was ready.
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
    """Yield the moments at which the user started to speak."""
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
