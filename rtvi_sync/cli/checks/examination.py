"""The state that the checks of one doctor run share: the address, the time, the session, and its words."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from rtvi_sync import RTVIClient, RTVIError, Turn
from rtvi_sync.concurrency.abort import AbortController, AbortSignal
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.future import Future
from rtvi_sync.concurrency.pool_task import PoolTask
from rtvi_sync.errors import TransportStartError
from rtvi_sync.media import AudioFrame, NullSink
from rtvi_sync.media.tracks import TrackFrames
from rtvi_sync.net.dial import Network
from rtvi_sync.session.connect_request import BotURL

from .trial import Trial

# Seconds for all checks together, beside the limit of connect(). The end of the session may take 5 s.
SECONDS = 15.0
# Seconds after an answer until a bot with muting listens again.
_MUTED = 2.0

# Time limit of the doctor's own connections, and their allowed delay, in seconds.
OPENING = 4.0
GRACE = 1.0

T = TypeVar("T")


class Examination:
    """One run of the doctor. Use it as a context manager, on one thread. Its end ends the session.

    Args:
        url: URL of the bot.
        options: Options of `RTVIClient.for_url()`.
        question: Typed question.
        speaks: True to also speak to the bot.

    Attributes:
        url, parts, bot_url: Address in three forms.
        client: Client of the session.
        limit: Deadline of all checks.
        round_trip: Seconds in which the server accepted a connection; None if unknown.
        answer: Answer to the typed question; None if there is none yet.
        voice: Audio of the answer.
        heard: Answer to spoken words.
        unheard: Error if the bot did not hear them; None if it did, or nothing was said.
    """

    def __init__(self, url: str, options: dict[str, Any], *, question: str, speaks: bool) -> None:
        self.url = url
        self.parts: SplitResult = urlsplit(url)
        self.bot_url: BotURL = BotURL.parse(url)
        self.network: Network = Network()
        self.question = question
        self.speaks = speaks
        self.limit: Deadline = Deadline(SECONDS + float(options["connect_timeout"]))
        self.client: RTVIClient = RTVIClient.for_url(url, **options, mic=False, speaker=NullSink())
        self._listens = threading.Event()  # set while the bot has not muted the user
        self._listens.set()
        self.client.on("user_mute_started", lambda _: self._listens.clear())
        self.client.on("user_mute_stopped", lambda _: self._listens.set())
        self.client.turns()  # starts the turn tracker, so that turns have audio
        self.round_trip: float | None = None
        self.answer: Turn | None = None
        self.heard: Turn | None = None
        self.unheard: RTVIError | None = None
        self.voice: list[AudioFrame] = []
        self._trial: Trial | None = None
        self._frames: TrackFrames[AudioFrame] | None = None

    def __enter__(self) -> Examination:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    @property
    def trial(self) -> Trial:
        """The attempt to connect, which the first access makes."""
        if self._trial is None:
            is_named = self.bot_url.ws_url is not None
            self._trial = Trial(self.client, self.parts if is_named else None)
            track = self.client.tracks().bot.audio
            self._frames = None if track is None else track.frames()
        return self._trial

    @property
    def is_only_heard(self) -> bool:
        """True if the bot is reached by a transport without messages."""
        transport = self.client.transport
        return transport is not None and not transport.carries_messages

    def take_frames(self) -> list[AudioFrame]:
        """Return the bot's audio since the last call."""
        return [] if self._frames is None else self._frames.take()

    def is_muted(self) -> bool:
        """Return whether the bot muted the user and stays muted for a while."""
        return not self._listens.wait(self.seconds(_MUTED))

    def seconds(self, most: float) -> float:
        """Return the time limit of a step in seconds: `most`, or the remaining time."""
        return self.limit.at_most(most)

    def open(self, url: SplitResult, opener: Callable[[SplitResult, Network, AbortSignal], T]) -> T:
        """Open a connection of the doctor's own.

        Args:
            url: URL of the server.
            opener: Function of `url`, the network and the signal of the attempt.

        Raises:
            TimeoutError: The connection did not open within `OPENING` seconds.
            OSError, RTVIError: Raised by `opener`.
        """
        signal = AbortController(
            Deadline(self.seconds(OPENING)), lambda: TransportStartError("The check was ended")
        ).signal
        signal.is_supervised = False
        # The lookup of a name may hang.
        return self.within(OPENING + GRACE, lambda: opener(url, self.network, signal))

    def within(self, most: float, work: Callable[[], T]) -> T:
        """Run `work()` on another thread and return its result, or abandon it at the time limit.

        Raises:
            TimeoutError: It took `most` seconds, or the time of all checks has passed.
            Exception: Raised by `work()`.
        """
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.resolve(work())
            except BaseException as error:  # noqa: BLE001 - it is raised to the caller
                done.reject(error)

        PoolTask("check", run).start()
        if not done.wait(Deadline(self.seconds(most))):
            raise TimeoutError("it takes too long")
        return done.result()
