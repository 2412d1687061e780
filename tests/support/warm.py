"""A Python that has the package imported, and runs each script in a fork of itself.

Starting a Python and importing takes longer than most scripts of the tests. A script of `WarmProcess` has the modules,
but not the changes that other scripts made to them. It has its own `__main__`, arguments, environment, folder and
standard streams, and ends as a program does: it runs the functions registered for the exit, and has its own status.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import threading
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
#: Options of pytest in a warm Python. Where the package is installed, as by `run.py demo`, pytest would rewrite the
#: assertions of its modules, and warns that they are imported already.
WARM_PYTEST: Final = ("-W", "ignore:Module already imported")
_STREAMS: Final = 3
_NUMBER: Final = struct.Struct("q")  # the length of a request, a process id, an exit status
# Keeps the requests of threads apart. Held while one is sent, by tests only.
_sending = threading.Lock()

# -- the side of the tests ---------------------------------------------------------------------------------------------


@functools.cache
def _control(pid: int) -> socket.socket:
    """Return the connection of a process of the tests to its warm Python, which is started by the first call."""
    ours, theirs = socket.socketpair()
    packages = os.pathsep.join([str(ROOT), *(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))])
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", __name__, str(theirs.fileno())],
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": packages, "PYTHONUNBUFFERED": "1"},
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def close() -> None:
        if os.getpid() == pid:
            ours.close()
            process.wait()

    atexit.register(close)
    return ours


def start() -> None:
    """Start the warm Python of this process, so that its connections belong to no test."""
    _control(os.getpid())


def _read_number(connection: socket.socket) -> int:
    (number,) = _NUMBER.unpack(connection.recv(_NUMBER.size, socket.MSG_WAITALL))
    return int(number)


class WarmProcess:
    """A script in a process of its own. Has the methods of `subprocess.Popen` that tests use."""

    def __init__(self, script: str, *arguments: str, folder: Path = ROOT, env: Mapping[str, str] = os.environ) -> None:
        pipes = [os.pipe() for _ in range(_STREAMS)]
        (stdin, self_in), (self_out, stdout), (self_err, stderr) = pipes
        self._status, status = socket.socketpair()
        self.args = ["-c", *arguments]
        request = {"code": script, "argv": self.args, "cwd": str(folder), "env": dict(env)}
        descriptors = [stdin, stdout, stderr, status.fileno()]
        content, control = json.dumps(request).encode(), _control(os.getpid())
        with _sending:
            socket.send_fds(control, [_NUMBER.pack(len(content))], descriptors)
            control.sendall(content)
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        status.close()
        self.returncode: int | None = None
        self.pid = _read_number(self._status)
        self.stdin: Any = os.fdopen(self_in, "w")
        self.stdout: Any = os.fdopen(self_out)
        self.stderr: Any = os.fdopen(self_err)
        self._texts: dict[str, str] = {}
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):  # data that was written and not read
                stream.close()
        self.wait()
        self._status.close()

    def poll(self) -> int | None:
        """Return the status if the process has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Return the status, or the signal as a negative number."""
        if self.returncode is None:
            self._status.settimeout(None if timeout is None else max(timeout, 0.001))
            try:
                self.returncode = _read_number(self._status)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Write to the standard input and close it; return the output of the process until its end."""
        if not self._readers:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.write(input or "")
                self.stdin.close()
            self._readers = [threading.Thread(target=self._read, args=[n], daemon=True) for n in ("stdout", "stderr")]
            for reader in self._readers:
                reader.start()
        deadline = None if timeout is None else time.monotonic() + timeout
        for reader in self._readers:
            reader.join(None if deadline is None else max(deadline - time.monotonic(), 0.0))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if deadline is None else deadline - time.monotonic())
        return self._texts["stdout"], self._texts["stderr"]

    def _read(self, name: str) -> None:
        self._texts[name] = getattr(self, name).read()


# -- the side of the scripts -------------------------------------------------------------------------------------------


def _next_script(control: socket.socket) -> tuple[types.CodeType, dict[str, Any]] | None:
    """Fork for each script that is asked for. Return in each fork, with its code; and with None at the end."""
    while True:
        length, descriptors, _, _ = socket.recv_fds(control, _NUMBER.size, _STREAMS + 1)
        if not length:
            control.close()
            return None
        request = control.recv(_NUMBER.unpack(length)[0], socket.MSG_WAITALL)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    # This process waits for the one that runs the script, because it alone can.
    control.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, status = descriptors
    child = os.fork()
    if child:
        for descriptor in streams:
            os.close(descriptor)
        os.write(status, _NUMBER.pack(child))
        _, ended = os.waitpid(child, 0)
        os.write(status, _NUMBER.pack(os.waitstatus_to_exitcode(ended)))
        os._exit(0)
    os.close(status)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    told = json.loads(request)
    os.chdir(told["cwd"])
    os.environ.clear()
    os.environ.update(told["env"])
    sys.argv[:] = told["argv"]
    sys.path[0] = ""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    return compile(told["code"], "<string>", "exec", dont_inherit=True), vars(main)


def _import() -> None:
    """Import the modules that most scripts need, and those of a run of pytest. None of them starts a thread."""
    import hypothesis  # noqa: F401 - by its plugin
    import pytest

    import rtvi_sync
    import rtvi_sync.media
    import rtvi_sync.testing

    for module in (rtvi_sync, rtvi_sync.media, rtvi_sync.testing):
        for name in module.__all__:
            getattr(module, name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main(["-VV", "-c", os.devnull, "--noconftest"])  # the list of its plugins, with their versions


if __name__ == "__main__":
    _import()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then close the connection
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the forks that wait are not waited for
    gc.collect()
    gc.freeze()
    _script = _next_script(socket.socket(fileno=int(sys.argv[1])))
    if _script is not None:
        exec(*_script)
