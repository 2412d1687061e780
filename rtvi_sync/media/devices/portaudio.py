"""PortAudio in this process: its initialization and termination, its list of devices, and its open streams."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ...concurrency.clock import monotonic
from ...concurrency.deadline import Deadline
from ...concurrency.latch import Notifier
from ...concurrency.lifecycle import register_for_fork
from ...errors import DeviceError, MissingExtraError
from ..base import MediaDeviceInfo
from . import device_probe
from .audio_errors import (
    PA_UNANTICIPATED_HOST_ERROR,
    failed,
    forked,
    library_failed,
    missing_library,
    no_answer,
    not_found,
)
from .audio_libraries import is_installed
from .probing import PortAudioDevice, parse_devices, probe

if TYPE_CHECKING:
    from .portaudio_backend import DeviceStream

# Seconds that a call waits for the audio system; the process that lists the devices may take as long.
LIMIT = device_probe.LIMIT
# Seconds that all streams of the process have to close for a restart; each needs up to one period of its audio.
_CLOSE_FOR_RESTART_LIMIT = 0.5
# A device that was unplugged and plugged in again has its old name and is another one to PortAudio. So PortAudio is
# restarted if a listed device fails, unless it was initialized less than this many seconds ago.
_MIN_RESTART_AGE = 10.0
# Part of the names of devices that only one process at a time can open.
_ALSA_HARDWARE = "(hw:"
# The libraries that write messages to standard error, and the functions that set a handler for these. PortAudio's own
# messages are about its internal failures.
_SETTERS = {
    "libasound.so.2": ["snd_lib_error_set_handler"],
    "libjack.so.0": ["jack_set_error_function", "jack_set_info_function"],
    "libportaudio.so.2": ["PaUtil_SetDebugPrintFunction"],
}


class PortAudioStream(Protocol):
    """An open stream of PortAudio, in blocking mode, with samples of 16 bits.

    All methods are called on the thread that opened it. They raise an OSError with PortAudio's error code and text.
    """

    def read(self, frames: int) -> bytes:
        """Wait for `frames` frames and return them; audio that was lost before them raises nothing."""

    def write(self, pcm: bytes, frames: int) -> None:
        """Wait for room and write `pcm`, which has `frames` frames."""

    def read_available(self) -> int:
        """Return how many frames can be read without blocking."""

    def write_available(self) -> int:
        """Return how many frames can be written without blocking."""

    def restart(self) -> None:
        """Drop the audio that was written and not played yet; `write()` may follow."""

    def close(self) -> None:
        """Close the device; unplayed audio is lost."""


class PortAudioBinding(Protocol):
    """An initialized PortAudio, by one of the libraries that bind it to Python: each has a module with a `Binding`.

    In that module `load()` imports the library; it raises an ImportError if that, or PortAudio, is not installed.
    `Binding(load())` initializes PortAudio. Like all methods it raises an OSError with PortAudio's error code and text.
    """

    def terminate(self) -> None:
        """Terminate PortAudio; called once."""

    def hosts(self) -> list[str]:
        """Return the names of the host APIs, by their numbers."""

    def devices(self) -> list[dict[str, Any]]:
        """Return all devices, each with `index`, `name`, `host`, `inputs`, `outputs` (channels) and `rate_hz`."""

    def defaults(self) -> tuple[int | None, int | None]:
        """Return the indices of the default microphone and speaker."""

    def open_input(self, index: int, rate: int, channels: int, frames: int) -> PortAudioStream:
        """Open a microphone.

        Args:
            index: The device's index; the device exists.
            rate: sample rate in Hz.
            channels: the number of channels, at most the device's.
            frames: frames in one period of the device's buffer.
        """

    def open_output(self, index: int, rate: int, channels: int, frames: int) -> PortAudioStream:
        """Open a speaker; see `open_input()`."""


class PortAudio:
    """PortAudio, initialized for the first stream that is opened and terminated with the last one that is closed.

    PortAudio lists the devices when it is initialized. If a stream requests a device that was plugged in later,
    PortAudio is restarted: each open stream closes on its own thread, at its next read or write; the last one
    terminates PortAudio; the requesting stream initializes it again, and the others reopen their devices.

    Methods may be called on any thread but the main one, where Ctrl-C could interrupt them halfway.

    Args:
        library: "pyaudio" or "sounddevice".
    """

    # Held around calls for which PortAudio is not thread-safe: initialize, terminate, list, open and close. Two
    # concurrent initializations crash the process, even by two different libraries. It guards the fields below. Unlike
    # other locks it is held while a library blocks, in a hung sound server perhaps for ever. So calls wait for it with
    # a timeout, except those that close, whose threads are abandoned if they take long.
    _lock: ClassVar[threading.Lock] = threading.Lock()
    # Whether a thread holds the lock.
    _busy: ClassVar[bool] = False

    def __init__(self, library: str) -> None:
        self.library: str = library
        self._notifier = Notifier()
        self._audio: PortAudioBinding | None = None
        self._initialized_at = 0.0
        self._devices: list[PortAudioDevice] = []
        self._streams: dict[DeviceStream, PortAudioDevice] = {}
        # The stream that requested a restart; the other streams read it without the lock.
        self._restart_requester: object | None = None
        # Whether another process has initialized PortAudio successfully since the last failure in this one.
        self._probed = False
        self._lost_by_fork = False
        register_for_fork(self)

    # -- devices ------------------------------------------------------------------------------------------------------

    def devices(self) -> list[PortAudioDevice]:
        """Return the devices that exist now. Blocks for about 50 ms, for up to `LIMIT`.

        Raises:
            MissingExtraError: the library, or PortAudio below it, is not installed.
            DeviceError: PortAudio fails, hangs, crashes, or belongs to the parent process.
        """
        self._check()
        found = probe(self.library)
        if found is not None:
            self._probed = True
            return self.add_open_devices(found)
        with self._locked(LIMIT):
            self._initialize()
            try:
                return list(self._devices)
            finally:
                self._terminate_if_unused()

    def add_open_devices(self, devices: list[PortAudioDevice]) -> list[PortAudioDevice]:
        """Return `devices` and those that other processes cannot list because they are open in this one."""
        seen = {(device.info.kind, device.info.device_id) for device in devices}
        hidden = [device for device in list(self._streams.copy().values()) if _ALSA_HARDWARE in device.info.label]
        return devices + [device for device in hidden if (device.info.kind, device.info.device_id) not in seen]

    # -- streams ------------------------------------------------------------------------------------------------------

    def open_stream(self, stream: DeviceStream, kind: str, device_id: str | None) -> PortAudioDevice:
        """Find a device and have `stream` open it; PortAudio stays initialized until `close_stream()`.

        Args:
            stream: opens the device.
            kind: "audioinput" or "audiooutput".
            device_id: id of the device; None: the default.

        Raises:
            MissingExtraError, DeviceError: see `AudioBackend.open_input()`.
        """
        self._check()
        self._probe_first()
        with self._locked_after_restart():
            fresh = self._initialize()
            try:
                return self._open_device(stream, kind, device_id)
            except DeviceError as error:
                if fresh or error.type == "in-use":
                    raise
                failure = error
            finally:
                self._terminate_if_unused()
        if not self._may_be_outdated(failure):
            raise failure
        with self._locked_after_restart():
            self._restart_requester = stream
        return self._restart(stream, kind, device_id)

    def close_for_restart(self, stream: DeviceStream) -> bool:
        """Close `stream` if a restart was requested, and wait for that. Called before each read and write.

        Returns:
            Whether `stream` was closed, and has to be opened with `open_stream()` again.

        Raises:
            DeviceError: `stream` belongs to the parent process.
        """
        if self._lost_by_fork:
            raise forked()
        if self._restart_requester is None:
            return False
        self.close_stream(stream)
        # The restart has limits of its own, and `open_stream()` raises if it failed.
        self._notifier.wait_for(lambda: self._restart_requester is None, Deadline(_CLOSE_FOR_RESTART_LIMIT + LIMIT))
        return True

    def close_stream(self, stream: DeviceStream, *, broken: bool = False) -> None:
        """Close `stream`. Blocks without a timeout.

        Args:
            broken: its device failed, so another process initializes PortAudio before this one does so again.
        """
        if self._lost_by_fork:
            return
        with self._locked(-1):  # without a timeout
            stream.close_device()
            self._streams.pop(stream, None)
            if broken:
                self._probed = False
            self._terminate_if_unused()
        self._notifier.notify_all()

    def failure_of(self, error: DeviceError, info: MediaDeviceInfo) -> DeviceError:
        """Return why an open device failed, once its stream is closed. May block, as `devices()` does.

        PortAudio doesn't say that a device is gone: the list of devices does. While the stream was open, the list would
        not tell: other processes do not see hardware that this one has.

        Args:
            error: the error that the stream has raised.
            info: the device.
        """
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.args and cause.args[0] == PA_UNANTICIPATED_HOST_ERROR:
            with contextlib.suppress(DeviceError, MissingExtraError):
                infos = [device.info for device in self.devices()]
                if info not in infos:
                    return not_found(info.kind, info.device_id, infos)
        return error

    def _restart(self, stream: DeviceStream, kind: str, device_id: str | None) -> PortAudioDevice:
        """Initialize PortAudio again once all other streams are closed."""
        try:
            if not self._notifier.wait_for(lambda: self._audio is None, Deadline(_CLOSE_FOR_RESTART_LIMIT)):
                raise no_answer(kind)
            with self._locked(LIMIT):
                self._initialize()
                try:
                    return self._open_device(stream, kind, device_id)
                finally:
                    self._terminate_if_unused()
        finally:
            self._restart_requester = None
            self._notifier.notify_all()

    def _open_device(self, stream: DeviceStream, kind: str, device_id: str | None) -> PortAudioDevice:
        for device in self._devices:
            if device.info.kind == kind and (
                device.info.is_default if device_id is None else device_id == device.info.device_id
            ):
                break
        else:
            raise not_found(kind, device_id, [device.info for device in self._devices])
        assert self._audio is not None  # it was initialized before
        try:
            stream.open_device(self._audio, device)
        except OSError as error:
            self._probed = False
            raise failed(error, device.info) from error
        self._streams[stream] = device
        return device

    def _may_be_outdated(self, error: DeviceError) -> bool:
        """Return whether the list of devices may have changed since PortAudio was initialized, given this error."""
        if error.type != "not-found" and monotonic() - self._initialized_at > _MIN_RESTART_AGE:
            return True
        found = probe(self.library)
        if found is None:
            return False

        def known(devices: list[PortAudioDevice]) -> set[tuple[str, str, bool]]:
            return {(device.info.kind, device.info.device_id, device.info.is_default) for device in devices}

        return known(self.add_open_devices(found)) != known(self._devices)

    # -- the library --------------------------------------------------------------------------------------------------

    def _initialize(self) -> bool:
        """Initialize PortAudio unless it is initialized; return whether it was not, so that its list is new."""
        if self._audio is not None:
            return False
        binding = importlib.import_module(f".{self.library}_binding", __package__)
        try:
            library = binding.load()
            silence_libraries()
            audio = binding.Binding(library)
            try:
                self._devices = parse_devices(device_probe.describe(audio))
            except BaseException:
                audio.terminate()
                raise
        except ImportError as error:
            raise missing_library(self.library, str(error)) from error
        except OSError as error:
            raise library_failed(error) from error
        self._audio = audio
        self._initialized_at = monotonic()
        return True

    def _terminate_if_unused(self) -> None:
        if not self._streams and self._audio is not None:
            # Once per initialization, because more would terminate the PortAudio of another part of the application.
            audio, self._audio = self._audio, None
            audio.terminate()

    def _check(self) -> None:
        if self._lost_by_fork:
            raise forked()
        # This check is much faster than a process that fails to import the library.
        if not is_installed(self.library):
            raise missing_library(self.library)

    def _probe_first(self) -> None:
        """Have another process initialize PortAudio first. Called without the lock, for which closing streams wait."""
        if self._audio is None and not self._probed:
            probe(self.library)
            self._probed = True

    @contextlib.contextmanager
    def _locked(self, timeout: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=timeout):
            raise no_answer()
        PortAudio._busy = True
        try:
            yield
        finally:
            PortAudio._busy = False
            self._lock.release()

    @contextlib.contextmanager
    def _locked_after_restart(self) -> Iterator[None]:
        deadline = Deadline(LIMIT)
        while self._notifier.wait_for(lambda: self._restart_requester is None, deadline):
            with self._locked(deadline.at_most(LIMIT)):
                if self._restart_requester is None:
                    yield
                    return
        raise no_answer()

    def after_fork_in_child(self) -> None:
        """Abandon an initialized PortAudio: its streams belong to the parent, and its threads do not exist here."""
        if self._audio is not None or self._busy:
            # Never freed, because that would close the parent's streams.
            for object_ in (self._audio, *self._streams):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(object_))
            self._lost_by_fork = True
        PortAudio._lock = threading.Lock()
        self._notifier = Notifier()
        self._restart_requester = None


def silence_libraries() -> None:
    """Suppress the messages that the libraries below PortAudio write to standard error, until the process ends.

    ALSA and JACK print about 80 lines when PortAudio initializes on a machine without devices, and one at each
    underrun. Call this after the import of the library that binds PortAudio, and before PortAudio is initialized.

    The handler is `getpid()` of the C library, which takes no arguments and so ignores any that it gets. It must not be
    a Python function: threads of the libraries would call it at any time, even after the interpreter's end.
    """
    if sys.platform != "linux":
        return
    import os

    handler = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
    for library, setters in _SETTERS.items():
        # Only libraries that PortAudio has loaded need a handler; loading others would be a side effect.
        with contextlib.suppress(OSError):
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
            for setter in setters:
                with contextlib.suppress(AttributeError):
                    getattr(loaded, setter)(handler)
