"""A program that uses the real PyAudio or sounddevice, on the devices of `pulse.py`.

Each part is run as a process of its own:

    python -m tests.audio.streams LIBRARY PART

It prints its findings in JSON. Then it waits for a line from the test, which changes the daemon before it writes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from rtvi_sync.errors import DeviceError
from rtvi_sync.media.devices import portaudio_backend
from tests.support import limits, part_probes
from tests.support.slowness import GUARD, Stopwatch, takes
from tests.support.waiting import until

SPEECH_HZ, HEARD_HZ = 24000, 16000


def backend() -> portaudio_backend.PortAudioBackend:
    """Return the backend of the library that the test has chosen."""
    return portaudio_backend.backend(sys.argv[1])


class Reader:
    """A thread with a microphone. `gap` is the longest time between two periods since it was last set to 0."""

    def __init__(self, device_id: str | None = None) -> None:
        self._opened = threading.Event()
        self._over = threading.Event()
        self.periods = 0
        self.gap = 0.0
        self.error: DeviceError | None = None
        self.failed = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[device_id], daemon=True)
        self._thread.start()
        assert self._opened.wait(GUARD)

    def _run(self, device_id: str | None) -> None:
        try:
            stream = self._open(device_id)
        except DeviceError as error:
            self.error = error
            self.failed.set()
            return
        finally:
            self._opened.set()
        last = time.monotonic()
        failure: DeviceError | None = None
        try:
            while not self._over.is_set():
                self._period(stream)
                now = time.monotonic()
                self.gap, last = max(self.gap, now - last), now
                self.periods += 1
        except DeviceError as error:
            failure = error
        stream.close()
        if failure is not None:
            self.error = backend().failure_of(failure, stream.device)
            self.failed.set()

    def _open(self, device_id: str | None) -> Any:
        return backend().open_input(device_id, HEARD_HZ, 0.02)

    def _period(self, stream: Any) -> None:
        assert len(stream.read()) == 640

    def wait(self, periods: int = 10) -> None:
        """Wait until this many more have arrived, or the device has failed."""
        end = self.periods + periods
        until(lambda: self.periods >= end or self.failed.is_set())

    def close(self) -> None:
        self._over.set()
        self._thread.join(GUARD)
        assert not self._thread.is_alive()


class Writer(Reader):
    """A thread with a speaker, which plays a quiet tone."""

    def _open(self, device_id: str | None) -> Any:
        return backend().open_output(device_id, SPEECH_HZ, 0.04)

    def _period(self, stream: Any) -> None:
        stream.write(b"\x00\x10\x00\x10\x00\xf0\x00\xf0" * 240)


def done(**found: Any) -> None:
    """Tell the test, and wait until it has done its part."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


def measure() -> dict[str, int]:
    """Count threads, including those in libraries, and descriptors."""
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "begun": int(part_probes.portaudio_is_begun(sys.argv[1])),
    }


# -- the parts ---------------------------------------------------------------------------------------------------------


def cycles(rounds: str) -> None:
    """Open, read, write and close on two threads at once, each time other devices, while two others compute."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))

    for _ in range(2):
        threading.Thread(target=compute, daemon=True).start()
    before: dict[str, int] = {}
    for number in range(int(rounds) + 5):
        if number == 5:
            before = settled()
        letter = "ab"[number % 2]
        reader, writer = Reader(f"ALSA/mic_{letter}"), Writer(f"ALSA/speaker_{letter}")
        reader.wait(1)
        writer.wait(1)
        reader.close()
        writer.close()
        assert (reader.error, writer.error) == (None, None)
    after = settled()
    over.set()
    done(**{name: after[name] - before[name] for name in before})


def settled() -> dict[str, int]:
    """Return the result of `measure()` once it stays the same: threads of libraries take a moment to end."""
    seen: list[dict[str, int]] = []

    def same() -> bool:
        seen.append(measure())
        return len(seen) > 20 and all(each == seen[-1] for each in seen[-20:])

    until(same)
    return seen[-1]


def running() -> None:
    """Let a reader and a writer run on while the test changes the daemon, and report their errors."""
    reader, writer = Reader("ALSA/mic_a"), Writer("ALSA/speaker_a")
    reader.wait()
    writer.wait()
    done(running=True)
    reader.wait()
    writer.wait()
    done(errors=[type(each.error).__name__ for each in (reader, writer)])
    reader.close()
    writer.close()


def killed() -> None:
    """Have the daemon killed and started again."""
    reader, writer = Reader(), Writer()
    reader.wait()
    done(running=True)
    with takes(5.0):
        assert reader.failed.wait(GUARD)
        assert writer.failed.wait(GUARD)
    errors = [each.error.type for each in (reader, writer) if each.error is not None]
    gone: list[str] = []
    for opener in (Reader, Writer):
        error = opener().error
        assert error is not None
        gone.append(error.type)
    done(errors=errors, gone=gone, devices=len(backend().devices()))
    reader, writer = Reader(), Writer()
    reader.wait()
    writer.wait()
    done(back=True, devices=len(backend().devices()))
    reader.close()
    writer.close()


def set_limit(seconds: float) -> None:
    """Set the limits of calls that the daemon has to answer: short only where it hangs."""
    limits.change(device_probe=seconds, device_call=seconds)


def stopped() -> None:
    """Have the daemon answer nothing for a while, then go on."""
    reader, writer = Reader(), Writer()
    reader.wait()
    set_limit(1.0)
    done(running=True)
    periods = -1
    while periods != reader.periods + writer.periods:
        periods = reader.periods + writer.periods
        time.sleep(0.3)
    with Stopwatch() as watch:
        try:
            backend().devices()
            listed = "listed"
        except DeviceError as error:
            listed = error.type
    done(listed=listed, took=watch.given)
    set_limit(GUARD)
    reader.wait()
    writer.wait()
    reader.close()
    writer.close()
    done(errors=[reader.error is None, writer.error is None], devices=len(backend().devices()))


def stopped_before() -> None:
    """Have a daemon that does not answer when the first device is opened: this process never starts PortAudio."""
    set_limit(1.0)
    with Stopwatch() as watch:
        error = Reader().error
    assert error is not None
    done(error=str(error), took=watch.given, **measure())
    set_limit(GUARD)
    reader = Reader()
    reader.wait()
    reader.close()
    done(back=reader.error is None)


def restarted() -> None:
    """Plug a third device in while two streams run, and open it by its id, which restarts PortAudio."""
    reader, writer = Reader("ALSA/mic_a"), Writer("ALSA/speaker_a")
    reader.wait()
    writer.wait()
    done(running=True)
    reader.gap = writer.gap = 0.0
    new = Reader("ALSA/mic_c")
    assert new.error is None
    new.wait()
    gaps = [reader.gap, writer.gap]
    reader.wait()
    writer.wait()
    errors = [each.error is None for each in (reader, writer, new)]
    for each in (reader, writer, new):
        each.close()
    done(gaps=gaps, errors=errors, **measure())


def underrun() -> None:
    """Give a speaker nothing for a while, which ALSA reports on standard error unless it is silenced."""
    stream = backend().open_output(None, SPEECH_HZ, 0.04)
    for _ in range(5):
        stream.write(bytes(1920))
    until(lambda: stream.room() >= stream.buffer)
    time.sleep(0.1)
    stream.write(bytes(1920))
    stream.close()
    source = backend().open_input(None, HEARD_HZ, 0.02)
    source.read()
    time.sleep(0.5)
    backlog = source.backlog()
    source.read()
    source.close()
    done(backlog=backlog)


def dropped() -> None:
    """Drop sound, which is then not heard, and play more, which is."""
    stream = backend().open_output("ALSA/speaker_a", SPEECH_HZ, 0.04)
    for _ in range(10):
        for _ in range(3):
            stream.write(b"\x00\x70" * 960)
        stream.drop()
        for _ in range(4):
            stream.write(bytes(1920))
    for _ in range(25):
        stream.write(b"\x00\x10" * 960)
    done(buffer=stream.buffer)
    stream.close()


def abandoned() -> None:
    """Exit while other threads read and write; the devices must not prevent it."""
    reader, writer = Reader(), Writer()
    reader.wait()
    writer.wait()
    sys.stdout.write("{}\n")


def forked() -> None:
    """Fork a process with open devices: the child ends with all of Python's clean-up, the parent goes on."""
    reader, writer = Reader(), Writer()
    reader.wait()
    pid = os.fork()
    if pid == 0:
        try:
            backend().devices()
        except DeviceError as error:
            sys.exit(0 if "forked" in str(error) else 1)
        sys.exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    reader.wait(25)
    writer.wait(25)
    errors = [reader.error is None, writer.error is None]
    reader.close()
    writer.close()
    done(child=code, errors=errors)


def many() -> None:
    """Start and end PortAudio on many threads at once, and ask for lists: PortAudio alone would end the process."""
    failures: list[BaseException] = []

    def each(number: int) -> None:
        try:
            for _ in range(5):
                if number % 4 == 3:
                    assert backend().devices()
                elif number % 2:
                    stream = backend().open_input(None, HEARD_HZ, 0.02)
                    stream.read()
                    stream.close()
                else:
                    backend().open_output(None, SPEECH_HZ, 0.04).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=each, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done(failures=[repr(error) for error in failures])


def nothing() -> None:
    """Make each call where there is no device; every call says so."""
    errors = []
    for opener in (Reader, Writer):
        error = opener().error
        assert error is not None
        errors.append(error.type)
    done(devices=backend().devices(), errors=errors)


if __name__ == "__main__":
    set_limit(GUARD)
    globals()[sys.argv[2]](*sys.argv[3:])
