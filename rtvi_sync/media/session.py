"""The audio of one session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.pacer import Pacer
from ..errors import DeviceError
from ..events import RTVIEvent
from . import pcm as pcm_tools
from .base import AudioSink, AudioSource, Claim
from .capture import AheadReader, MemoryReader, MicFeed, Reader, SendAudio
from .playback import DirectSpeaker, QueuedSpeaker, Speaker
from .sinks import MEMORY_SINKS, NullSink
from .tracks import Track
from .virtual import MEMORY_SOURCES, MemorySource, PackagedSource, SourceRun

logger: logging.Logger = logging.getLogger(__name__)

OnEvent = Callable[[RTVIEvent, Any], None]

_NO_BACKEND = (
    "this version has no backend for the devices of a machine (PyAudio's is to come). Pass mic= and speaker= objects "
    "of rtvi_sync.media, such as WavSource and WavSink, or enable_mic=False and speaker=NullSink() for no audio at all"
)


@attrs.frozen(kw_only=True)
class MediaCounters:
    """What went wrong with audio since the session began, without ending it.

    Attributes:
        mic_underruns: chunks of 20 ms of silence that were sent because the source was late.
        speaker_dropped: frames of the bot's that the sink was too slow for.
        bot_frames_ignored: frames of the bot's with an impossible sample rate or number of channels.
    """

    mic_underruns: int = 0
    speaker_dropped: int = 0
    bot_frames_ignored: int = 0


def no_such_device(kind: str, device_id: str) -> DeviceError:
    """The error for a device that was asked for by its id."""
    return DeviceError(
        f"There is no {kind} {device_id!r}: {_NO_BACKEND}. (A file is not a device id: use WavSource or WavSink.)",
        devices=(kind,),
        type="not-found",
    )


class MediaSession:
    """The microphone, the speaker and the tracks of one session. The manager's lock guards what is replaced in it.

    Args:
        on_event: told of `DEVICE_ERROR`, from any thread.
        mic_enabled: whether the microphone is on; asked for each chunk of 20 ms.
    """

    def __init__(self, on_event: OnEvent, mic_enabled: Callable[[], bool]) -> None:
        self.on_event = on_event
        self._mic_enabled = mic_enabled
        self.bot: Track = Track(label="bot")
        self.local: Track | None = None
        self.mic: MicFeed | None = None
        self.mic_source: str | AudioSource | None = None
        self.speaker: Speaker | None = None
        self.speaker_sink: str | AudioSink | None = None
        self.started: tuple[Pacer, SendAudio] | None = None
        # Threads of sources and sinks that were replaced and did not come back in time.
        self.given_up: list[threading.Thread] = []
        # Counts of sources and sinks that were replaced.
        self.underruns: int = 0
        self.dropped: int = 0
        # The io thread's alone.
        self.ignored = 0

    def open_mic(self, mic: str | AudioSource | None) -> MicFeed | None:
        """Claim a source and make its feed; may block in code of the user's (`sample_rate_hz`)."""
        if mic is None:
            return None
        if isinstance(mic, str):
            raise no_such_device("mic", mic)
        try:
            rate = pcm_tools.check_rate(mic.sample_rate_hz)
        except Exception as error:
            raise DeviceError(
                f"The mic {type(mic).__name__} has no usable sample_rate_hz: {error}", devices=("mic",)
            ) from error
        claim = Claim(mic, "mic")

        def failed(error: BaseException) -> None:
            run.end()
            self._report("mic", mic, error)

        reader: Reader
        if isinstance(mic, MemorySource) and type(mic) in MEMORY_SOURCES:
            reader = MemoryReader(mic, claim)
        else:
            reader = AheadReader(mic, rate, claim, self._mic_enabled, failed)
        # It cannot have failed before this line: nothing is read before the feed is started.
        run = mic.begin_run() if isinstance(mic, PackagedSource) else SourceRun()
        return MicFeed(reader, rate, run=run, enabled=self._mic_enabled, publish=self._publish_local)

    def open_speaker(self, sink: str | AudioSink | None) -> Speaker | None:
        """Claim a sink and make what writes to it."""
        if sink is None:
            return None
        if isinstance(sink, str):
            raise no_such_device("speaker", sink)

        def failed(error: BaseException) -> None:
            self._report("speaker", sink, error)

        if type(sink) in MEMORY_SINKS:
            return DirectSpeaker(sink, None if isinstance(sink, NullSink) else Claim(sink, "speaker"), failed)
        return QueuedSpeaker(sink, Claim(sink, "speaker"), failed)

    def put_mic(self, feed: MicFeed | None, source: str | AudioSource | None) -> Track | None:
        """Install a feed and let the local track follow; returns a track that has ended. The manager's lock is held."""
        if self.mic is not None:
            self.underruns += self.mic.underruns
        self.mic, self.mic_source = feed, source
        if feed is None:
            ended, self.local = self.local, None
            return ended
        label = type(source).__name__
        if self.local is None:
            self.local = Track(label=label, enabled=self._mic_enabled)
        self.local.label = label
        return None

    def put_speaker(self, speaker: Speaker | None, sink: str | AudioSink | None) -> None:
        """Install what writes to a sink. The manager's lock is held."""
        if self.speaker is not None:
            self.dropped += self.speaker.dropped
        self.speaker, self.speaker_sink = speaker, sink

    def _report(self, kind: str, thing: object, error: BaseException) -> None:
        """Tell of a failed source or sink; called on its thread."""
        if not isinstance(error, DeviceError):
            failure = DeviceError(f"The {kind} {type(thing).__name__} failed: {error!r}", devices=(kind,))
            failure.__cause__ = error
            error = failure
        self.on_event(RTVIEvent.DEVICE_ERROR, error)

    def report_missing(self, *kinds: str) -> None:
        """Tell of default devices that are absent."""
        error = DeviceError(f"No {' and no '.join(kinds)}: {_NO_BACKEND}", devices=kinds, type="not-found")
        logger.warning("%s. The session goes on without", error)
        self.on_event(RTVIEvent.DEVICE_ERROR, error)

    def _publish_local(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
        """Hand what was sent to the readers of the local track; called on the pacer's thread."""
        track = self.local
        if track is not None:
            track.publish(pcm, sample_rate_hz, timestamp)

    def counters(self) -> MediaCounters:
        """What was lost so far."""
        return MediaCounters(
            mic_underruns=self.underruns + (self.mic.underruns if self.mic is not None else 0),
            speaker_dropped=self.dropped + (self.speaker.dropped if self.speaker is not None else 0),
            bot_frames_ignored=self.ignored,
        )

    def close(self, deadline: Deadline) -> list[threading.Thread]:
        """End everything; the threads that were given up at the deadline."""
        ending = [part for part in (self.mic, self.speaker) if part is not None]
        if self.mic is not None:
            self.mic.halt()
        if self.speaker is not None:
            self.speaker.finish()
        for track in (self.local, self.bot):
            if track is not None:
                track.end()
        threads = [part.join(deadline) for part in ending]
        alive = [thread for thread in self.given_up if thread.is_alive()]
        return alive + [thread for thread in threads if thread is not None]
