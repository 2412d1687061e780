"""Client of the process that lists the devices of this machine; see `device_probe`."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

import attrs

from ...concurrency.logs import package_logger
from ...errors import DeviceError
from ...protocol.record import Record
from ..base import MediaDeviceInfo
from . import device_probe
from .audio_errors import crashed, library_failed, missing_library, no_answer

if TYPE_CHECKING:
    import subprocess

logger: logging.Logger = package_logger(__name__)

# On Windows, exit codes from here on are exceptions such as an access violation.
_NT_EXCEPTION = 0xC0000000
#: Seconds that the process has to end by itself. Killing it inside PortAudio may corrupt JACK's client registry, and
#: then PortAudio hangs in every process.
EXIT_TIMEOUT = 0.5


@attrs.frozen(eq=False, repr=False)
class PortAudioDevice(Record):
    """A device as PortAudio lists it.

    Attributes:
        info: the public description.
        index: its number, valid until PortAudio is initialized again.
        channels: its maximum number of channels.
        rate_hz: its default sample rate.
    """

    info: MediaDeviceInfo
    index: int
    channels: int
    rate_hz: int


def parse_devices(devices: list[dict[str, Any]]) -> list[PortAudioDevice]:
    """Return the result of `device_probe.describe()` as objects."""
    return [
        PortAudioDevice(
            MediaDeviceInfo(
                device_id=device["device_id"],
                kind=device["kind"],
                label=device["label"],
                is_default=device["default"],
            ),
            index=device["index"],
            channels=device["channels"],
            rate_hz=device["rate_hz"],
        )
        for device in devices
    ]


def probe(library: str) -> list[PortAudioDevice] | None:
    """Return the devices that a short-lived process lists; None if it cannot be started. Blocks for about 50 ms.

    Args:
        library: "pyaudio" or "sounddevice".

    Raises:
        MissingExtraError: the library, or PortAudio below it, is not installed.
        DeviceError: PortAudio fails, hangs or crashes.
    """
    import subprocess

    try:
        process = start_process(library, "once")
    except OSError as error:
        logger.info("Cannot list the devices in another process: %s", error)
        return None
    try:
        output, _ = process.communicate(b"\n", timeout=device_probe.LIMIT)
    except subprocess.TimeoutExpired:
        raise no_answer() from None
    finally:
        end_process(process)
    return parse_answer(library, process, output)


def start_process(library: str, repeat: str) -> subprocess.Popen[bytes]:
    """Start a process that answers each line that it reads with one that `parse_answer()` takes.

    It ends by itself when its input is closed, also by the end of this process.

    Args:
        library: "pyaudio" or "sounddevice".
        repeat: "once" to end after one answer, or "always".

    Raises:
        OSError: no such process can be started here.
    """
    import subprocess

    # In a frozen application, and in one that embeds Python, sys.executable is that application.
    python = os.path.basename(sys.executable or "").lower()
    if getattr(sys, "frozen", False) or not python.startswith(("python", "pypy")) or not os.path.isfile(_SCRIPT):
        raise OSError(f"{sys.executable!r} is no Python interpreter that can run a script")
    # In a process group of its own Ctrl-C does not reach it, and on Windows no window opens.
    isolation: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        isolation = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])  # Python ignores the others, too
    return subprocess.Popen(  # noqa: S603 - it is this interpreter
        [sys.executable, "-I", _SCRIPT, library, repeat, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        **isolation,
    )


@attrs.define(unsafe_hash=True, repr=False)
class Prober:
    """Lists the devices again and again, by a process that it keeps. One thread calls and closes it.

    PortAudio notices changes only when it is initialized again. The process ends with this one, however that ends.

    Args:
        library: "pyaudio" or "sounddevice".
        complete: adds the devices that the process cannot list because they are open in this one.
    """

    _library: str
    _complete: Callable[[list[PortAudioDevice]], list[PortAudioDevice]]
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False, eq=False)

    def __call__(self) -> list[MediaDeviceInfo] | None:
        """Return the devices that exist now; None, and a log entry, if they can't be listed. May block.

        Raises:
            MissingExtraError: the library, or PortAudio below it, is not installed.
            DeviceError: PortAudio fails, hangs or crashes. The next call tries it in a new process.
        """
        try:
            process = self._process = self._process or start_process(self._library, "always")
            found = parse_answer(self._library, process, request_devices(process))
        except OSError as error:
            logger.warning("Cannot list the devices; new ones are not noticed: %s", error)
            return None
        except DeviceError:
            self.close()
            raise
        return [device.info for device in self._complete(found)] if found is not None else None

    def close(self) -> None:
        """End the process, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process)

    def kill(self) -> None:
        """Kill the process, so that a call returns. Any thread."""
        if (process := self._process) is not None:
            process.kill()

    def abandon(self) -> None:
        """Forget the process, which is the parent process's: it ends once all copies of its pipes are closed."""
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # set, so that its finalizer does not wait for it in this process
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


_SCRIPT = os.path.abspath(device_probe.__file__)


def request_devices(process: subprocess.Popen[bytes]) -> bytes:
    """Request a list from a process that was started with "always", and return its answer; empty if it has ended.

    Blocks for up to `device_probe.LIMIT`, after which the process ends itself.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    answer = b""
    try:
        process.stdin.write(b"\n")
        while not answer.endswith(b"\n"):
            chunk = process.stdout.read(65536)
            if not chunk:
                return b""
            answer += chunk
    except BrokenPipeError:
        return b""
    return answer


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End the process, kill it if it hangs, and close its pipes."""
    import subprocess

    pipe: IO[bytes] | None
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(EXIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def parse_answer(library: str, process: subprocess.Popen[bytes], line: bytes) -> list[PortAudioDevice] | None:
    """Return the devices in an answer of the process; None if it is no answer of that script.

    Raises:
        MissingExtraError: the library, or PortAudio below it, is not installed.
        DeviceError: PortAudio fails, hangs or crashes there.
    """
    if not line:
        code = process.wait()  # its output is closed, so it is about to end
        if hasattr(signal, "SIGALRM") and code == -signal.SIGALRM:
            raise no_answer()
        if code < 0 or code >= _NT_EXCEPTION:
            raise crashed(code)
    try:
        answer = json.loads(line)
    except ValueError:
        logger.info("Cannot list the devices in another process: %s does not start as Python does", sys.executable)
        return None
    if "missing" in answer:
        raise missing_library(library, answer["missing"])
    if "error" in answer:
        raise library_failed(OSError(answer["error"]))
    return parse_devices(answer["devices"])
