"""The PortAudio of this process: when it begins and ends, and what devices it knows."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

from ...concurrency.deadline import Deadline
from ...concurrency.latch import Notifier
from ...concurrency.lifecycle import register_for_fork
from ...errors import DeviceError
from . import device_probe, portaudio_noise
from .audio_errors import failed, forked, library_failed, missing_library, no_answer, not_found
from .probing import PortAudioDevice, described, probe

# How long a call waits for the sound system, in seconds; as long as the process that lists the devices may take.
LIMIT = device_probe.LIMIT
# How long all streams of the process have to make way, in seconds; each needs as long as one period of its audio.
_MAKE_WAY_LIMIT = 0.5
# A device that was pulled out and is back has its old name and is another one to PortAudio. So where one fails that is
# said to be there, PortAudio begins anew too, but not again within so many seconds.
_AGE = 10.0
# In the names of devices that one process has for itself.
_ALSA_HARDWARE = "(hw:"


class User(Protocol):
    """A stream. Both methods are called on the thread that it belongs to, with PortAudio held by nobody else."""

    def open(self, audio: Any, device: PortAudioDevice) -> None:
        """Open `device` with a `pyaudio.PyAudio()`. Raises what that raises: an OSError, for example."""

    def shut(self) -> None:
        """Close what was opened."""


class PortAudio:
    """Begins with the first stream that is opened, and ends with the last that is closed.

    PortAudio lists the devices when it begins. When one is wanted that it does not know, and that is there now, all
    streams make way: each closes on its own thread, at its next read or write; the last one ends PortAudio; it begins
    anew for whoever wanted the device, and the others open again.

    Methods may be called on any thread but the main one, where Ctrl-C could leave things half done.
    """

    def __init__(self) -> None:
        # Held around what PortAudio is not made for doing on several threads: it begins, ends, lists, opens and closes
        # (two that begin it at once end the process). It guards the fields below. Unlike other locks it is held while
        # a library blocks, in a hung sound server perhaps for ever: so calls wait for it for a limited time, except
        # those that close, on threads that are given up if they take long.
        self._lock = threading.Lock()
        self._notifier = Notifier()
        self._audio: Any = None
        self._begun_at = 0.0
        self._devices: list[PortAudioDevice] = []
        self._users: dict[User, PortAudioDevice] = {}
        # Who wants PortAudio to begin anew; the streams look at it without the lock.
        self._renewer: object | None = None
        # Whether another process has begun PortAudio without harm, since something failed in this one.
        self._tried = False
        self._forked = False
        register_for_fork(self)

    # -- devices ------------------------------------------------------------------------------------------------------

    def devices(self) -> list[PortAudioDevice]:
        """The devices there are now. Blocks for some 50 ms, for `LIMIT` at most.

        Raises:
            MissingExtraError: PyAudio or PortAudio is not installed.
            DeviceError: PortAudio fails, hangs, crashes, or belongs to the parent process.
        """
        self._check()
        found = probe()
        if found is not None:
            self._tried = True
            return self.with_open(found)
        with self._held(LIMIT):
            self._begin()
            try:
                return list(self._devices)
            finally:
                self._end_if_unused()

    def with_open(self, devices: list[PortAudioDevice]) -> list[PortAudioDevice]:
        """A list from another process, with what is open in this one and can be seen nowhere else for that reason."""
        seen = {(device.info.kind, device.info.device_id) for device in devices}
        hidden = [device for device in list(self._users.copy().values()) if _ALSA_HARDWARE in device.info.label]
        return devices + [device for device in hidden if (device.info.kind, device.info.device_id) not in seen]

    # -- streams ------------------------------------------------------------------------------------------------------

    def enter(self, user: User, kind: str, device_id: str | None) -> PortAudioDevice:
        """Find a device and have `user` open it; from now on PortAudio stays until `leave()`.

        Args:
            user: the stream.
            kind: "audioinput" or "audiooutput".
            device_id: None: the default.

        Raises:
            MissingExtraError, DeviceError: see `AudioBackend.open_input()`.
        """
        self._check()
        self._try_elsewhere()
        with self._held_after_renewal():
            fresh = self._begin()
            try:
                return self._open(user, kind, device_id)
            except DeviceError as error:
                if fresh or error.type == "in-use":
                    raise
                failure = error
            finally:
                self._end_if_unused()
        if not self._is_outdated(failure):
            raise failure
        with self._held_after_renewal():
            self._renewer = user
        return self._enter_anew(user, kind, device_id)

    def make_way(self, user: User) -> bool:
        """Close `user` if that is wanted: True; it has to `enter()` again then. Called before each read and write.

        Raises:
            DeviceError: `user` belongs to the parent process.
        """
        if self._forked:
            raise forked()
        if self._renewer is None:
            return False
        self.leave(user)
        # The renewal has limits of its own; what comes of it, `enter()` finds out.
        self._notifier.wait_for(lambda: self._renewer is None, Deadline(_MAKE_WAY_LIMIT + LIMIT))
        return True

    def leave(self, user: User, *, broken: bool = False) -> None:
        """Close `user`. Waits as long as it takes.

        Args:
            broken: its device failed, so PortAudio is tried in another process before it begins here again.
        """
        if self._forked:
            return
        with self._lock:
            user.shut()
            self._users.pop(user, None)
            if broken:
                self._tried = False
            self._end_if_unused()
        self._notifier.notify_all()

    def _enter_anew(self, user: User, kind: str, device_id: str | None) -> PortAudioDevice:
        """Begin anew when all others have made way."""
        try:
            if not self._notifier.wait_for(lambda: self._audio is None, Deadline(_MAKE_WAY_LIMIT)):
                raise no_answer(kind)
            with self._held(LIMIT):
                self._begin()
                try:
                    return self._open(user, kind, device_id)
                finally:
                    self._end_if_unused()
        finally:
            self._renewer = None
            self._notifier.notify_all()

    def _open(self, user: User, kind: str, device_id: str | None) -> PortAudioDevice:
        for device in self._devices:
            if device.info.kind == kind and (
                device.info.is_default if device_id is None else device_id == device.info.device_id
            ):
                break
        else:
            raise not_found(kind, device_id, [device.info for device in self._devices])
        try:
            user.open(self._audio, device)
        except OSError as error:
            self._tried = False
            raise failed(error, device.info) from error
        self._users[user] = device
        return device

    def _is_outdated(self, error: DeviceError) -> bool:
        """Whether there are other devices now than when PortAudio began, or may be, after this error."""
        if error.type != "not-found" and time.monotonic() - self._begun_at > _AGE:
            return True
        found = probe()
        if found is None:
            return False

        def known(devices: list[PortAudioDevice]) -> set[tuple[str, str, bool]]:
            return {(device.info.kind, device.info.device_id, device.info.is_default) for device in devices}

        return known(self.with_open(found)) != known(self._devices)

    # -- the library --------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Have PortAudio begun; True if it was not, and its list is new."""
        if self._audio is not None:
            return False
        try:
            # Where PortAudio is missing, PyAudio prints so; but another process has found that out before.
            pyaudio = importlib.import_module("pyaudio")
        except ImportError as error:
            raise missing_library(str(error)) from error
        portaudio_noise.silence()
        try:
            audio = pyaudio.PyAudio()
            try:
                self._devices = described(device_probe.describe(audio))
            except BaseException:
                audio.terminate()
                raise
        except OSError as error:
            raise library_failed(error) from error
        self._audio = audio
        self._begun_at = time.monotonic()
        return True

    def _end_if_unused(self) -> None:
        if not self._users and self._audio is not None:
            # Once for each begin, or it would end the PortAudio of another part of the program.
            audio, self._audio = self._audio, None
            audio.terminate()

    def _check(self) -> None:
        if self._forked:
            raise forked()
        # Much sooner known than by a process that fails to import it.
        if "pyaudio" not in sys.modules and importlib.util.find_spec("pyaudio") is None:
            raise missing_library("No module named 'pyaudio'")

    def _try_elsewhere(self) -> None:
        """Before PortAudio begins here. Not with the lock held, for which others would have to wait to close."""
        if self._audio is None and not self._tried:
            probe()
            self._tried = True

    @contextlib.contextmanager
    def _held(self, timeout: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=timeout):
            raise no_answer()
        try:
            yield
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def _held_after_renewal(self) -> Iterator[None]:
        deadline = Deadline(LIMIT)
        while self._notifier.wait_for(lambda: self._renewer is None, deadline):
            with self._held(deadline.at_most(LIMIT)):
                if self._renewer is None:
                    yield
                    return
        raise no_answer()

    def after_fork_in_child(self) -> None:
        """What PortAudio has open is the parent's, and its threads are not here: nothing of it may be touched again."""
        if self._audio is not None or not self._lock.acquire(blocking=False):
            # Not even freed, which would close the parent's streams.
            for thing in (self._audio, *self._users):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
            self._forked = True
        self._lock = threading.Lock()
        self._notifier = Notifier()
        self._renewer = None
