"""Asks another process for the devices of this machine; see `device_probe`."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import IO, TYPE_CHECKING, Any

import attrs

from ..base import MediaDeviceInfo
from . import device_probe
from .audio_errors import crashed, library_failed, missing_library, no_answer

if TYPE_CHECKING:
    import subprocess

logger: logging.Logger = logging.getLogger(__name__)

# From here on exit codes of Windows are exceptions such as an access violation.
_NT_EXCEPTION = 0xC0000000
#: How long a process may take to end, in seconds. One that is killed inside PortAudio may spoil JACK's list of
#: programs, and then PortAudio hangs in all.
PATIENCE = 0.5


@attrs.frozen
class PortAudioDevice:
    """A device as PortAudio knows it.

    Attributes:
        info: what users see.
        index: its number, until PortAudio begins anew.
        channels: how many it has at most.
        rate_hz: its own sample rate.
    """

    info: MediaDeviceInfo
    index: int
    channels: int
    rate_hz: int


def described(devices: list[dict[str, Any]]) -> list[PortAudioDevice]:
    """The devices of `device_probe.describe()`."""
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


def probe() -> list[PortAudioDevice] | None:
    """The devices as a short-lived process finds them; None if this process can start none. Blocks for some 50 ms.

    Raises:
        MissingExtraError: PyAudio or PortAudio is not installed.
        DeviceError: PortAudio fails, hangs or crashes.
    """
    import subprocess

    try:
        prober = start("once")
    except OSError as error:
        logger.info("The devices are not listed by another process: %s", error)
        return None
    try:
        output, _ = prober.communicate(b"\n", timeout=device_probe.LIMIT)
    except subprocess.TimeoutExpired:
        raise no_answer() from None
    finally:
        end(prober)
    return answer_of(prober, output)


def start(repeat: str) -> subprocess.Popen[bytes]:
    """Start a process that answers once, or always: each line it gets with one that `answer_of()` takes.

    It ends by itself when nobody is there any more to ask it.

    Raises:
        OSError: that is not possible here.
    """
    import subprocess

    # In a frozen program, and in one that embeds Python, that program itself.
    python = os.path.basename(sys.executable or "").lower()
    if getattr(sys, "frozen", False) or not python.startswith(("python", "pypy")) or not os.path.isfile(_PROGRAM):
        raise OSError(f"{sys.executable!r} is not an interpreter that could be started again")
    # In a group of its own Ctrl-C does not reach it, and on Windows no window opens.
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return subprocess.Popen(  # noqa: S603 - it is this interpreter
        [sys.executable, "-I", _PROGRAM, repeat, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        **apart,
    )


_PROGRAM = os.path.abspath(device_probe.__file__)


def ask(prober: subprocess.Popen[bytes]) -> bytes:
    """What a process answers that was started to answer always; empty if it has ended. It answers or ends in time."""
    assert prober.stdin is not None
    assert prober.stdout is not None
    answer = b""
    try:
        prober.stdin.write(b"\n")
        while not answer.endswith(b"\n"):
            part = prober.stdout.read(65536)
            if not part:
                return b""
            answer += part
    except BrokenPipeError:
        return b""
    return answer


def end(prober: subprocess.Popen[bytes]) -> None:
    """Have the process end, kill it if it hangs, and free what belongs to it."""
    import subprocess

    pipe: IO[bytes] | None
    for pipe in (prober.stdin, prober.stdout):
        if pipe is not None:
            pipe.close()
    try:
        prober.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        prober.kill()
        prober.wait()


def answer_of(prober: subprocess.Popen[bytes], line: bytes) -> list[PortAudioDevice] | None:
    """The devices in an answer of the process; None if it is no answer of that program.

    Raises:
        MissingExtraError: PyAudio or PortAudio is not installed.
        DeviceError: PortAudio fails, hangs or crashes there.
    """
    if not line:
        code = prober.wait()  # not long any more
        if hasattr(signal, "SIGALRM") and code == -signal.SIGALRM:
            raise no_answer()
        if code < 0 or code >= _NT_EXCEPTION:
            raise crashed(code)
    try:
        answer = json.loads(line)
    except ValueError:
        logger.info("Devices were not listed by another process: %s does not start as a Python does", sys.executable)
        return None
    if "missing" in answer:
        raise missing_library(answer["missing"])
    if "error" in answer:
        raise library_failed(OSError(answer["error"]))
    return described(answer["devices"])
