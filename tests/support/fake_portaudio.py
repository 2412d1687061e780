"""Libraries of PortAudio without sound: where a real one would end the process, hang or lose sound, it says so."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs

from tests.support.slowness import GUARD

PERIODS = 3  # of the device's buffer


@attrs.define
class FakeDevice:
    """A device of the machine.

    Attributes:
        name: as PortAudio has it; bytes where PyAudio cannot decode it.
        inputs, outputs: channels.
        rate: its own sample rate.
        rates, channels: the supported values; None: all.
        error: raised when it is opened.
        host: number of its host API.
    """

    name: str | bytes
    inputs: int = 0
    outputs: int = 0
    rate: float = 44100.0
    rates: set[int] | None = None
    channels: set[int] | None = None
    error: OSError | None = None
    host: int = 0


@attrs.define(eq=False)
class FakeMachine:
    """The current devices, and their history. `module()` stands in for a library.

    Attributes:
        devices: plug in and pull out as you like; PortAudio sees the changes when it starts.
        defaults: names of the default devices, by kind.
        hosts: name and type of the host APIs.
        begun: how often PortAudio has started.
        alive: how many times it has started and not ended.
        streams: all that were ever opened.
        crashes: the calls that would have ended a process with the real one.
        begin: called when PortAudio starts.
        lists: called when it is asked for a device.
    """

    devices: list[FakeDevice] = attrs.field(factory=list)
    defaults: dict[str, str] = attrs.field(factory=dict)
    hosts: list[tuple[str, int]] = attrs.field(factory=lambda: [("ALSA", 8), ("Windows WDM-KS", 11)])
    begun: int = 0
    alive: int = 0
    streams: list[FakeStream] = attrs.field(factory=list)
    crashes: list[str] = attrs.field(factory=list)
    begin: Callable[[], object] = lambda: None
    lists: Callable[[], object] = lambda: None
    _inside: int = 0

    @contextlib.contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Refuse calls on two threads at once, which PortAudio does not survive."""
        self._inside += 1
        if self._inside > 1:
            self.crashes.append(f"{what} while another thread was inside")
        try:
            threading.Event().wait(0.001)  # let them in
            yield
        finally:
            self._inside -= 1

    @property
    def open_streams(self) -> list[FakeStream]:
        return [stream for stream in self.streams if stream.is_open]

    def module(self, library: str) -> Any:
        """Return the module that an import of "pyaudio" or "sounddevice" finds."""
        if library == "sounddevice":
            return FakeSoundDevice(self)
        machine = self

        class PyAudio(FakePyAudio):
            def __init__(self) -> None:
                super().__init__(machine)

        pa = types.SimpleNamespace(abort_stream=FakeStream.abort, start_stream=FakeStream.start)
        return types.SimpleNamespace(PyAudio=PyAudio, paInt16=8, pa=pa)


class FakePyAudio:
    """`pyaudio.PyAudio`."""

    def __init__(self, machine: FakeMachine) -> None:
        self._machine = machine
        with machine.alone("PortAudio began"):
            machine.begin()
            machine.begun += 1
            machine.alive += 1
            # Frozen from here on
            self._devices = list(machine.devices)
            self._defaults = dict(machine.defaults)
        self._ended = False

    def terminate(self) -> None:
        with self._machine.alone("PortAudio ended"):
            if self._ended:
                self._machine.crashes.append("terminate() was called twice")
            if self._machine.open_streams:
                self._machine.crashes.append("terminate() closed the streams of other threads")
            self._ended = True
            self._machine.alive -= 1

    def get_host_api_count(self) -> int:
        return len(self._machine.hosts)

    def get_host_api_info_by_index(self, index: int) -> dict[str, Any]:
        name, kind = self._machine.hosts[index]
        return {"name": name, "type": kind}

    def get_device_count(self) -> int:
        return len(self._devices)

    def get_device_info_by_index(self, index: int) -> dict[str, Any]:
        self._machine.lists()
        if not 0 <= index < len(self._devices):
            raise OSError(-9996, "Invalid device info")
        device = self._devices[index]
        return {
            "index": index,
            "name": device.name,
            "hostApi": device.host,
            "maxInputChannels": device.inputs,
            "maxOutputChannels": device.outputs,
            "defaultSampleRate": device.rate,
        }

    def get_default_input_device_info(self) -> dict[str, Any]:
        return self._default("audioinput", "No Default Input Device Available")

    def get_default_output_device_info(self) -> dict[str, Any]:
        return self._default("audiooutput", "No Default Output Device Available")

    def _default(self, kind: str, otherwise: str) -> dict[str, Any]:
        for index, device in enumerate(self._devices):
            if device.name == self._defaults.get(kind):
                return self.get_device_info_by_index(index)
        raise OSError(otherwise)

    def open(self, **options: Any) -> FakeStream:
        with self._machine.alone("a stream was opened"):
            is_input = options.get("input", False)
            index = options["input_device_index" if is_input else "output_device_index"]
            if self._ended:
                raise OSError(-10000, "PortAudio not initialized")
            if not 0 <= index < len(self._devices):
                self._machine.crashes.append("a device was opened that does not exist")
                raise OSError(-9996, "Invalid device")
            device = self._devices[index]
            if options["channels"] > (device.inputs if is_input else device.outputs):
                self._machine.crashes.append("it would print that the device has fewer channels")
            if device.error is not None:
                raise device.error
            if device not in self._machine.devices:
                raise OSError(-9999, "Unanticipated host error")
            if device.channels is not None and options["channels"] not in device.channels:
                raise OSError(-9998, "Invalid number of channels")
            if device.rates is not None and options["rate"] not in device.rates:
                raise OSError(-9997, "Invalid sample rate")
            stream = FakeStream(self._machine, device, **options)
            self._machine.streams.append(stream)
            return stream


class FakeStream:
    """`pyaudio.PyAudio.Stream`: a microphone that counts, or a speaker that notes the sound it plays.

    Attributes:
        device, rate, channels, frames: the arguments of its opening.
        played: the sound that was heard.
        queued: the sound in its buffer; `play()` has it heard.
        failing: raised by the next read or write, which closes the stream, as PyAudio does.
        hold: called in each read, before anything else.
    """

    def __init__(self, machine: FakeMachine, device: FakeDevice, **options: Any) -> None:
        self._machine = machine
        self._owner = threading.get_ident()
        self._stream = self  # where PyAudio has the object of its C part
        self.device = device
        self.rate: int = options["rate"]
        self.channels: int = options["channels"]
        self.frames: int = options["frames_per_buffer"]
        self.is_open = True
        self.is_started = True
        self.played = b""
        self.queued = b""
        self.failing: OSError | None = None
        self.hold: Callable[[], object] = lambda: None
        self._position = 0

    def _check(self) -> None:
        if threading.get_ident() != self._owner:
            self._machine.crashes.append("a stream was used by another thread than its own")
        if not self.is_open:
            raise OSError(-9988, "Stream closed")
        if self.failing is not None:
            self.is_open = False
            raise self.failing

    def read(self, frames: int, exception_on_overflow: bool = True) -> bytes:
        self.hold()
        self._check()
        if exception_on_overflow:
            self._machine.crashes.append("an overflow would have closed the stream")
        samples = range(self._position, self._position + frames)
        self._position += frames
        return b"".join((n % 1000).to_bytes(2, "little") * self.channels for n in samples)

    def write(self, data: bytes, frames: int) -> None:
        self._check()
        if type(data) is not bytes:
            raise TypeError(f"a bytes-like object is required, not {type(data).__name__}")
        if frames < 1:
            self._machine.crashes.append("nothing was written")
        if frames * 2 * self.channels > len(data):
            self._machine.crashes.append("more was played than there is in memory")
        self.queued += data[: frames * 2 * self.channels]
        # As a real one it waits for room; here all that is too much is heard at once.
        self.play(max(0, len(self.queued) // (2 * self.channels) - self.buffer))

    @property
    def buffer(self) -> int:
        return PERIODS * self.frames

    def play(self, frames: int) -> None:
        cut = frames * 2 * self.channels
        self.played += self.queued[:cut]
        self.queued = self.queued[cut:]

    def get_read_available(self) -> int:
        self._check()
        return self.frames

    def get_write_available(self) -> int:
        self._check()
        return self.buffer - len(self.queued) // (2 * self.channels)

    def close(self) -> None:
        with self._machine.alone("a stream was closed"):
            if threading.get_ident() != self._owner:
                self._machine.crashes.append("a stream was closed by another thread than its own")
            self.is_open = False

    def abort(self) -> None:
        self._check()
        self.queued = b""
        self.is_started = False

    def start(self) -> None:
        self._check()
        self.is_started = True


class FakePortAudioError(Exception):
    """`sounddevice.PortAudioError`, whose arguments are PyAudio's in another order."""


def _call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return function(*args, **options)
    except OSError as error:
        raise FakePortAudioError(*reversed(error.args)) from None


class FakeSoundDevice:
    """The module `sounddevice`, by a `FakePyAudio`."""

    PortAudioError = FakePortAudioError

    def __init__(self, machine: FakeMachine) -> None:
        self._machine = machine
        self._audio: FakePyAudio | None = None
        self._lib = types.SimpleNamespace(Pa_Initialize=self._initialize, Pa_Terminate=self._terminate)

    @staticmethod
    def _check(result: Any) -> Any:
        return result

    def _initialize(self) -> None:
        self._audio = _call(FakePyAudio, self._machine)

    def _terminate(self) -> None:
        assert self._audio is not None
        self._audio.terminate()

    @property
    def default(self) -> Any:
        assert self._audio is not None
        device = []
        for get in (self._audio.get_default_input_device_info, self._audio.get_default_output_device_info):
            try:
                device.append(get()["index"])
            except OSError as error:
                if len(error.args) > 1:
                    raise FakePortAudioError(*reversed(error.args)) from None
                device.append(-1)
        return types.SimpleNamespace(device=device)

    def query_hostapis(self) -> tuple[dict[str, Any], ...]:
        assert self._audio is not None
        hosts = [device.host for device in self._audio._devices]
        return tuple(
            {"name": name, "devices": [index for index, host in enumerate(hosts) if host == number]}
            for number, (name, _) in enumerate(self._machine.hosts)
        )

    def query_devices(self, index: int) -> dict[str, Any]:
        assert self._audio is not None
        info = _call(self._audio.get_device_info_by_index, index)
        name = info["name"]
        return {
            "index": index,
            "name": name.decode() if isinstance(name, bytes) else name,
            "hostapi": info["hostApi"],
            "max_input_channels": info["maxInputChannels"],
            "max_output_channels": info["maxOutputChannels"],
            "default_samplerate": info["defaultSampleRate"],
        }

    def RawInputStream(self, **options: Any) -> FakeRawStream:
        return self._open("input", **options)

    def RawOutputStream(self, **options: Any) -> FakeRawStream:
        return self._open("output", **options)

    def _open(self, direction: str, *, device: int, samplerate: int, blocksize: int, **options: Any) -> FakeRawStream:
        assert self._audio is not None
        assert (options.pop("dtype"), options.pop("latency")) == ("int16", "low")
        where = {direction: True, f"{direction}_device_index": device}
        return FakeRawStream(_call(self._audio.open, rate=samplerate, frames_per_buffer=blocksize, **options, **where))


class FakeRawStream:
    """`sounddevice.RawInputStream` and `RawOutputStream`."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream

    def read(self, frames: int) -> tuple[bytes, bool]:
        return _call(self._stream.read, frames, exception_on_overflow=False), False

    def write(self, data: bytes) -> bool:
        _call(self._stream.write, data, len(data) // 2 // self._stream.channels)
        return False

    @property
    def read_available(self) -> int:
        return int(_call(self._stream.get_read_available))

    @property
    def write_available(self) -> int:
        return int(_call(self._stream.get_write_available))

    def start(self) -> None:
        _call(self._stream.start)

    def abort(self, ignore_errors: bool = True) -> None:
        assert not ignore_errors
        _call(self._stream.abort)

    def close(self) -> None:
        self._stream.close()


class Owner:
    """A thread with a stream of its own."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def do(self, function: Any, *args: Any) -> Any:
        """Return the result of `function(*args)` on that thread."""
        return self._pool.submit(function, *args).result(GUARD)

    def begin(self, function: Any, *args: Any) -> Any:
        """Start the call on that thread, and return its future."""
        return self._pool.submit(function, *args)

    def close(self) -> None:
        self._pool.shutdown()


def counted(start: int, frames: int) -> bytes:
    """Return the audio of the fake microphone."""
    return b"".join((n % 1000).to_bytes(2, "little") for n in range(start, start + frames))
