"""What a transport with media owns: microphone, speaker and tracks, for one session after the other."""

from __future__ import annotations

import logging
import threading
import time
from typing import TypeVar

from ..concurrency.deadline import Deadline
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.pacer import Pacer
from ..concurrency.shield import shielded
from ..errors import DeviceError
from . import pcm as pcm_tools
from .base import AudioSink, AudioSource
from .capture import MicFeed, SendAudio
from .playback import Speaker
from .session import MediaCounters, MediaSession, OnEvent, no_such_device
from .tracks import ParticipantTracks, Tracks

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long replacing a source or sink, or giving up a prepared one, waits for it to close.
_REPLACE_TIMEOUT = 2.0


class MediaManager:
    """The microphone, the speaker and the tracks of one transport.

    Args:
        mic: None: the system's default; a device id; or an `AudioSource`.
        speaker: None: the system's default; a device id; or an `AudioSink`.
        enable_mic: False: muted from the start.

    Raises:
        TypeError: something else was given.
    """

    def __init__(
        self,
        *,
        mic: str | AudioSource | None = None,
        speaker: str | AudioSink | None = None,
        enable_mic: bool = True,
    ) -> None:
        _check("mic", mic, "read", "WavSource(path)")
        _check("speaker", speaker, "write", "WavSink(path)")
        # Guards the fields below and what the session says it guards. Any thread may hold it, for a few instructions;
        # sources, sinks, the pacer and `on_event` are never called under it. The io thread reads `_session`, and all
        # threads `_mic_enabled`, without it. Re-entrant, because a finalizer may come in between.
        self._lock = threading.RLock()
        self._mic = mic
        self._speaker = speaker
        self._mic_enabled = enable_mic
        self._session: MediaSession | None = None
        self._counters = MediaCounters()
        # How often stop() was called: tells a prepare() that was overtaken that nobody waits for it any more.
        self._stops = 0
        register_for_fork(self)

    # -- one session --------------------------------------------------------------------------------------------------

    def prepare(self, on_event: OnEvent) -> None:
        """Get source and sink ready. Called on the connect thread; may block in code of the user's (`sample_rate_hz`).

        A default device that is missing is logged and reported once, and the session goes on without it. Called again
        before `stop()` it only replaces `on_event`.

        Args:
            on_event: told of `DEVICE_ERROR` with a `DeviceError`, from any thread, until the session has stopped.

        Raises:
            DeviceError: a device asked for by id does not exist ("not-found"), a source or sink is used by another
                session ("in-use") or has no usable sample rate ("unknown").
        """
        with self._lock:
            if self._session is not None:
                self._session.on_event = on_event
                return
            stops, mic, speaker = self._stops, self._mic, self._speaker
        session = MediaSession(on_event, self._is_mic_enabled)
        try:
            session.put_mic(session.open_mic(mic), mic)
            session.put_speaker(session.open_speaker(speaker), speaker)
            with self._lock:
                if self._stops != stops or self._session is not None:
                    raise DeviceError("The session ended while its devices were being prepared")
                self._session = session
                self._counters = MediaCounters()
        except BaseException:
            session.close(Deadline(_REPLACE_TIMEOUT))
            raise
        missing = [kind for kind, given in (("mic", mic), ("speaker", speaker)) if given is None]
        if "mic" in missing and not self._mic_enabled:
            missing.remove("mic")
        if missing:
            session.report_missing(*missing)

    def start(self, pacer: Pacer, send_audio: SendAudio) -> None:
        """The bot is ready: the source starts from its beginning. Called on the io thread; does not block.

        Args:
            pacer: runs in-memory sources, and drains the others.
            send_audio: `send_audio(pcm, sample_rate_hz)`, called on the pacer's thread; must not block.
        """
        with self._lock:
            session = self._session
            if session is None or session.started is not None:
                return
            session.started = (pacer, send_audio)
            mic = session.mic
        if mic is not None:
            mic.start(pacer, send_audio)

    def receive_audio(self, pcm: bytes, sample_rate_hz: int, num_channels: int) -> None:
        """Take audio of the bot's. Called on the io thread; does not block.

        Several channels are mixed to mono; a missing number of channels (0) means one. What no one could play is
        counted and ignored.
        """
        session = self._session
        if session is None:
            return
        if not (pcm_tools.is_rate(sample_rate_hz) and 0 <= num_channels <= pcm_tools.MAX_CHANNELS):
            session.ignored += 1
            if session.ignored == 1:
                logger.warning("Audio of the bot's is ignored: %r Hz, %r channels", sample_rate_hz, num_channels)
            return
        pcm = pcm_tools.to_mono(pcm, num_channels or 1)
        if not pcm:
            return
        session.bot.publish(pcm, sample_rate_hz, time.monotonic())
        speaker = session.speaker
        if speaker is not None:
            speaker.write(pcm, sample_rate_hz)

    def interrupt(self) -> None:
        """The user interrupted the bot: queued playback is dropped. Called on the io thread; does not block."""
        session = self._session
        speaker = session.speaker if session is not None else None
        if speaker is not None:
            speaker.interrupt()

    def pause(self) -> None:
        """Send nothing more in this session from the return of this call on; what the bot says is still taken."""
        with self._lock:
            mic = self._session.mic if self._session is not None else None
        if mic is not None:
            mic.halt()

    def stop(self, timeout: float) -> list[threading.Thread]:
        """End the session: stop the source, give the sink what was received, close both, end the tracks.

        Called on the close thread. Idempotent; afterwards another session may be prepared.

        Args:
            timeout: limit in seconds for sources and sinks of the user's.

        Returns:
            Threads that were still in code of the user's at the limit. They own nothing any more.
        """
        with self._lock:
            self._stops += 1
            session, self._session = self._session, None
        if session is None:
            return []
        threads = session.close(Deadline(timeout))
        self._counters = session.counters()
        return threads

    def after_fork_in_child(self) -> None:
        """The session, its threads and whoever held the lock are the parent's."""
        self._lock = threading.RLock()
        self._session = None

    # -- the user's side: shielded, so that neither Ctrl-C nor a signal handler meets anything half done ---------------

    @property
    def is_mic_enabled(self) -> bool:
        """False: muted. May be read from any thread."""
        return self._mic_enabled

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone, now and for later sessions. Called on any thread; does not block.

        Muting sends 1 s of silence, then nothing; the source stands still until it is unmuted.
        """
        shielded(lambda: self._enable_mic(enable))

    def _enable_mic(self, enable: bool) -> None:
        self._mic_enabled = enable
        with self._lock:
            session = self._session
            mic = session.mic if session is not None else None
        if mic is not None:
            mic.look()
        elif session is not None and enable:
            session.report_missing("mic")

    def set_mic(self, mic: str | AudioSource | None) -> None:
        """Replace the source, also while a session runs; the local track goes on. Called on the user's thread.

        Waits up to 2 s for the old source to close.

        Raises:
            DeviceError: see `prepare()`; the old source goes on.
            TypeError: see the constructor.
        """
        _check("mic", mic, "read", "WavSource(path)")
        shielded(lambda: self._set_mic(mic))

    def _set_mic(self, mic: str | AudioSource | None) -> None:
        with self._lock:
            session = self._session
            if session is None:
                self._mic = _unless_device_id("mic", mic)
                return
            if mic is not None and mic is session.mic_source:
                return
        new = session.open_mic(mic)
        with self._lock:
            self._mic = mic
            # A session that has ended meanwhile has closed what it had, and will not close the new one.
            live = session is self._session
            old = session.mic if live else new
            ended = session.put_mic(new, mic) if live else None
            started = session.started
        if old is not None:
            old.halt()
        if ended is not None:
            ended.end()
        if new is not None and started is not None:
            new.start(*started)
        if mic is None and live and self._mic_enabled:
            session.report_missing("mic")
        self._join_replaced(session, old)

    def set_speaker(self, speaker: str | AudioSink | None) -> None:
        """Replace the sink, also while a session runs. Called on the user's thread.

        Waits up to 2 s for the old sink to take what it was already given, and to close.

        Raises:
            DeviceError: see `prepare()`; the old sink goes on.
            TypeError: see the constructor.
        """
        _check("speaker", speaker, "write", "WavSink(path)")
        shielded(lambda: self._set_speaker(speaker))

    def _set_speaker(self, speaker: str | AudioSink | None) -> None:
        with self._lock:
            session = self._session
            if session is None:
                self._speaker = _unless_device_id("speaker", speaker)
                return
            if speaker is not None and speaker is session.speaker_sink:
                return
        new = session.open_speaker(speaker)
        with self._lock:
            self._speaker = speaker
            live = session is self._session
            old = session.speaker if live else new
            if live:
                session.put_speaker(new, speaker)
        if old is not None:
            old.finish()
        if speaker is None and live:
            session.report_missing("speaker")
        self._join_replaced(session, old)

    def tracks(self) -> Tracks:
        """The audio tracks of the session; None for what is absent. Called on any thread."""
        session = self._session
        if session is None:
            return Tracks()
        return Tracks(local=ParticipantTracks(audio=session.local), bot=ParticipantTracks(audio=session.bot))

    @property
    def counters(self) -> MediaCounters:
        """What was lost in the current session, or in the last one. May be read from any thread."""
        session = self._session
        return session.counters() if session is not None else self._counters

    def _is_mic_enabled(self) -> bool:
        return self._mic_enabled

    def _join_replaced(self, session: MediaSession, part: MicFeed | Speaker | None) -> None:
        thread = part.join(Deadline(_REPLACE_TIMEOUT)) if part is not None else None
        if thread is not None:
            with self._lock:
                session.given_up.append(thread)


def _check(kind: str, given: object, method: str, example: str) -> None:
    if given is not None and not isinstance(given, str) and not callable(getattr(given, method, None)):
        raise TypeError(f"{kind} is None, a device id (str) or an object such as {example}, not {given!r}")


def _unless_device_id(kind: str, given: T) -> T:
    if isinstance(given, str):
        raise no_such_device(kind, given)
    return given
