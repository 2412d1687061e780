"""The devices of one client, in its sessions and between them."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ..concurrency.lifecycle import (
    NoThreadError,
    log_stack_of,
    register_for_fork,
    start_thread,
    system_failures_as,
)
from ..concurrency.logs import package_logger
from ..concurrency.runtime import Runtime, acquire_runtime
from ..concurrency.shield import shielded
from ..errors import DeviceError, UnsupportedFeatureError, fresh_copy
from ..events import RTVIEvent
from ..media import Tracks
from ..media.kinds import Kind
from ..media.manager import MediaManager
from ..session.dispatcher import Dispatcher
from ..session.publisher import ClientState, EventPublisher
from ..transports.base import Transport
from .options import RTVIClientOptions

logger: logging.Logger = package_logger(__name__)

# Limit of closing a device, or a sink of the application.
CLOSE_TIMEOUT = 1.0


def media_of(options: RTVIClientOptions) -> MediaManager:
    """Return the devices that the options name."""
    enable_cam = bool(options.enable_cam or options.enable_camera)
    if enable_cam and not (options.transport is not None and options.transport.supports_video):
        enable_cam = False
        logger.warning("enable_cam has no effect: the transport carries no video, as SmallWebRTCTransport does")
    return MediaManager(
        mic=options.mic,
        speaker=options.speaker,
        cam=options.cam,
        enable_mic=options.enable_mic,
        enable_cam=enable_cam,
        backend=options.audio_backend,
        max_queued_audio_bytes=options.max_queued_audio_bytes,
        echo_cancellation=options.echo_cancellation,
    )


class DeviceController:
    """The devices of one client, behind its device methods.

    Args:
        media: of the client.
        transport: returns that of the client; None: it has none.
        dispatcher, states: of the client.
        in_use: returns the transport, while it serves a session of the client.
        prefer_video: has the next session use a transport with video; returns False if the client has none.
        publish: publishes an event between two sessions.
    """

    def __init__(
        self,
        media: MediaManager,
        transport: Callable[[], Transport | None],
        dispatcher: Dispatcher,
        states: ClientState,
        *,
        in_use: Callable[[], Transport | None],
        prefer_video: Callable[[], bool],
        publish: Callable[[RTVIEvent, object], None],
    ) -> None:
        self.media = media
        self.hold: Hold = Hold(media)
        self._transport = transport
        self._dispatcher = dispatcher
        self._states = states
        self._in_use = in_use
        self._prefer_video = prefer_video
        self._publish_between_sessions = publish

    @system_failures_as(partial(DeviceError, devices=("mic", "speaker", "cam")), "The devices could not be opened")
    def init(self) -> None:
        """Open the devices. See `RTVIClient.init_devices()`."""
        transport = self._in_use()
        if transport is not None:
            shielded(transport.init_devices)
        else:
            shielded(self._init_between_sessions)

    def _init_between_sessions(self) -> None:
        if not self.hold.held:
            runtime = acquire_runtime()
            self.media.status_reporter.event_sink = EventPublisher(
                self._dispatcher, self._states, runtime.workers, takes_states=False
            )
            self.hold.begin(runtime)
            self.media.expect(runtime)
        try:
            transport = self._transport()
            self.media.prepare(
                audio=transport is None or transport.supports_audio,
                video=transport is not None and transport.supports_video,
                is_continuous=transport is not None and transport.audio_is_continuous,
            )
            self.media.watch_devices()
        except BaseException:
            self.hold.end()
            raise

    def enable_mic(self, enable: bool) -> None:
        """Store the setting for later sessions, and pass it to the transport of the current one."""
        self.media.settings.mic = enable  # also if the transport has devices of its own
        transport = self._in_use()
        if transport is not None:
            transport.enable_mic(enable)
        else:
            self.media.enable_mic(enable)

    def enable_cam(self, enable: bool) -> None:
        """Do what `enable_mic()` does, if the transport carries video."""
        self._enable_video("cam", enable, self.media.enable_cam)

    def enable_screen_share(self, enable: bool) -> None:
        """Do what `enable_cam()` does, for the screen."""
        self._enable_video("screen-share", enable, self.media.enable_screen_share)

    def _enable_video(self, feature: str, enable: bool, between_sessions: Callable[[bool], None]) -> None:
        in_use = self._in_use()
        try:
            if enable and not (self._prefer_video() if in_use is None else in_use.supports_video):
                who = "There is no transport" if self._transport() is None else "This transport carries no video"
                raise UnsupportedFeatureError(f"{who}. Use one that carries video, or leave it off", feature=feature)
            if in_use is None:
                between_sessions(enable)
            elif feature == "cam":
                self.media.settings.cam = enable
                in_use.enable_cam(enable)
            else:
                in_use.enable_screen_share(enable)
        except UnsupportedFeatureError as error:
            self._publish(RTVIEvent.UNSUPPORTED_FEATURE, fresh_copy(error))
            raise

    def update(self, kind: Kind, choice: Any) -> None:
        """Replace a device now, or for later sessions."""
        transport = self._in_use()
        if transport is None:
            self.media.select(kind, choice)
        else:
            {"mic": transport.update_mic, "speaker": transport.update_speaker, "cam": transport.update_cam}[kind](
                choice
            )

    def tracks(self) -> Tracks:
        """Return the tracks that exist now."""
        transport = self._in_use()
        return transport.tracks() if transport is not None else self.media.tracks()

    def _publish(self, event: RTVIEvent, data: object) -> None:
        if self._in_use() is not None or self.hold.held:
            self.media.status_reporter.event_sink.event(event, data)
        else:
            self._publish_between_sessions(event, data)


class Hold:
    """The devices that are open without a session, with the threads that their events need. Nothing in it refers to the
    client.

    Args:
        media: of the client.
    """

    def __init__(self, media: MediaManager) -> None:
        self._media = media
        # Guards `_runtime`. Any thread may hold it, for an assignment; re-entrant, because a finalizer may interrupt
        # one.
        self._lock = threading.RLock()
        self._runtime: Runtime | None = None
        register_for_fork(self)

    @property
    def held(self) -> bool:
        """Return whether devices are open without a session."""
        return self._runtime is not None

    def begin(self, runtime: Runtime) -> None:
        """Keep `runtime`, which was acquired for the devices that are about to be opened."""
        with self._lock:
            before, self._runtime = self._runtime, runtime
        if before is not None:  # another thread has just done so
            before.release()

    def hand_over(self) -> None:
        """Leave the open devices to a session that begins, and has acquired the runtime itself."""
        with self._lock:
            runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.release()

    def take_back(self) -> None:
        """Keep the open devices of a session that ends, for the one that follows."""
        self.begin(acquire_runtime())

    def end(self) -> None:
        """Close the open devices. Blocks for a moment; does nothing if a session has them."""
        if self._runtime is not None:
            log_stack_of(self._media.stop(CLOSE_TIMEOUT), "A source or sink does not return")
            self.hand_over()

    def collected(self) -> None:
        """Close the devices of a client that was collected. A finalizer may run anywhere, and must not wait."""
        runtime = self._runtime
        if runtime is not None:
            runtime.io.call(self._end_apart)

    def _end_apart(self) -> None:
        # If no thread can be started, the interpreter is shutting down and closes the devices itself.
        with contextlib.suppress(NoThreadError):
            start_thread("close", self.end)

    def after_fork_in_child(self) -> None:
        """Forget the devices, which are the parent's."""
        self._lock = threading.RLock()
        self._runtime = None
