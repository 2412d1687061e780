"""What the checks of one run of the doctor share: the address, the time, the session, and what was said in it."""

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
# Seconds after an answer in which a bot that was not to be interrupted listens again.
_MUTED = 2.0

# Seconds of a connection of the doctor's own, and those that it may be late.
OPENING = 4.0
GRACE = 1.0

T = TypeVar("T")


class Examination:
    """One run of the doctor. Use it as a context manager, on one thread; its end ends the session.

    Args:
        url: Of the bot.
        options: Of `RTVIClient.for_url()`.
        question: What is typed.
        speaks: Whether something is said to the bot, too.

    Attributes:
        url, parts, bot_url: The address, in three forms.
        client: The client of the session.
        limit: For all checks.
        round_trip: Seconds that the server took to accept a connection; None: not known yet.
        answer: What the bot answered to the typed question; None: not asked yet, or nothing.
        voice: The audio of that answer.
        heard: What it answered to spoken words.
        unheard: Why it has not heard them; None: it has, or nothing was said.
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
        self._listens = threading.Event()  # the bot has not muted the user
        self._listens.set()
        self.client.on("user_mute_started", lambda _: self._listens.clear())
        self.client.on("user_mute_stopped", lambda _: self._listens.set())
        self.client.turns()  # from now on they have their audio
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
        """Return the attempt to connect, which the first caller makes."""
        if self._trial is None:
            is_named = self.bot_url.ws_url is not None
            self._trial = Trial(self.client, self.parts if is_named else None)
            track = self.client.tracks().bot.audio
            self._frames = None if track is None else track.frames()
        return self._trial

    @property
    def is_only_heard(self) -> bool:
        """Return whether the bot is reached by a transport that carries no messages."""
        transport = self.client.transport
        return transport is not None and not transport.carries_messages

    def take_frames(self) -> list[AudioFrame]:
        """Return the bot's audio since the call before."""
        return [] if self._frames is None else self._frames.take()

    def is_muted(self) -> bool:
        """Return whether the bot has muted the user, and goes on to."""
        return not self._listens.wait(self.seconds(_MUTED))

    def seconds(self, most: float) -> float:
        """Return how long a step may take: `most`, or what is left."""
        return self.limit.at_most(most)

    def open(self, url: SplitResult, opener: Callable[[SplitResult, Network, AbortSignal], T]) -> T:
        """Open a connection of the doctor's own.

        Args:
            url: The server's.
            opener: Called with `url`, the network and the signal of the attempt.

        Raises:
            TimeoutError: Not within `OPENING` seconds.
            OSError, RTVIError: As `opener`.
        """
        signal = AbortController(
            Deadline(self.seconds(OPENING)), lambda: TransportStartError("The check was ended")
        ).signal
        signal.is_supervised = False
        # The look-up of a name may hang.
        return self.within(OPENING + GRACE, lambda: opener(url, self.network, signal))

    def within(self, most: float, work: Callable[[], T]) -> T:
        """Return what `work()` returns, or leave it behind on its thread.

        Raises:
            TimeoutError: It took `most` seconds, or the time of all checks is over.
            Exception: As `work()`.
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
