"""A PulseAudio daemon of a test's own: speakers, microphones and their feeds, all without hardware."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import numpy.typing as npt

from tests.support.slowness import GUARD
from tests.support.waiting import until

SPEAKERS = ("speaker_a", "speaker_b")
MICS = ("mic_a", "mic_b")
PACKAGES = "pulseaudio pulseaudio-utils libasound2-plugins"
#: The rate of recorded and played sound in these tests, unless a test asks for another.
RATE = 24000

Samples = npt.NDArray[np.int16]

# The latency of the programs that play and record, not of the code under test
_PLAY = ("pacat", "--playback", "--latency-msec=100")
_RECORD = ("parec", "--latency-msec=20")
# Without `norewinds` an idle sink of this kind runs 2 s ahead of time, and a recording of its monitor starts late.
_SINK = "module-null-sink sink_name={} rate=48000 channels={} norewinds=1"
_SOURCE = "module-remap-source source_name={} master={}.monitor"

_DAEMON = [
    "module-native-protocol-unix auth-anonymous=1 auth-cookie-enabled=0",
    *(_SINK.format(name, 2) for name in SPEAKERS),
    *(_SINK.format(f"{name}_feed", 1) for name in MICS),
    *(_SOURCE.format(name, f"{name}_feed") for name in MICS),
]
# A client must not start another daemon or look for a cookie at home.
_CLIENT = """
default-server = {server}
cookie-file = {directory}/cookie
autospawn = no
enable-shm = no
"""


def missing_parts() -> str | None:
    """Return the part that this machine lacks for a daemon with devices that PyAudio sees; None if it lacks none."""
    for program in ("pulseaudio", "pactl", "pacat", "parec"):
        if shutil.which(program) is None:
            return f"{program} is not installed: apt-get install {PACKAGES}"
    plugin = "alsa-lib/libasound_module_pcm_pulse.so"
    if not any(found for pattern in ("lib*", "lib/*") for found in Path("/usr").glob(f"{pattern}/{plugin}")):
        return f"ALSA's plugin for PulseAudio is not installed: apt-get install {PACKAGES}"
    try:
        import pyaudio  # noqa: F401
    except ImportError as error:
        return f"PyAudio is not installed: {error}"
    return None


class Recording:
    """The sound that leaves a sink, or enters a source, from now on; a context manager."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path, sample_rate_hz: int) -> None:
        self._process = process
        self._path = path
        self.sample_rate_hz = sample_rate_hz
        until(lambda: len(self.samples()), "nothing was recorded")

    def samples(self) -> Samples:
        """Return all that was recorded until now."""
        recorded = self._path.read_bytes()
        return np.frombuffer(recorded[: len(recorded) // 2 * 2], np.int16)

    def seconds(self) -> float:
        """Return how long the recording is now."""
        return self._path.stat().st_size / 2 / self.sample_rate_hz

    def wait(self, seconds: float, timeout: float = GUARD) -> Samples:
        """Wait until as much more was recorded; return that."""
        begin = len(self.samples())
        end = begin + int(seconds * self.sample_rate_hz)
        until(lambda: len(self.samples()) >= end, f"{seconds} s were not recorded", timeout + seconds)
        return self.samples()[begin:end]

    def wait_for(self, condition: Callable[[Samples], object], what: str, timeout: float = GUARD) -> Samples:
        """Wait until the recording is such that `condition` is true; return it."""
        until(lambda: condition(self.samples()), what, timeout)
        return self.samples()

    def stop(self) -> Samples:
        """End the recording and return it."""
        _end(self._process)
        return self.samples()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


@attrs.define(eq=False)
class PulseServer:
    """A daemon with `speaker_a`, `speaker_b`, `mic_a` and `mic_b`: the first of each kind are the defaults.

    `mic_a` hears the sound that is played to the sink `mic_a_feed`. PortAudio's devices have the same names.

    Attributes:
        directory: its socket, configuration, log and recordings; a short path, for the socket.
        environment: the variables that lead programs, and PortAudio, to this daemon and no other.
    """

    directory: Path
    environment: dict[str, str] = attrs.field(init=False)
    _process: subprocess.Popen[bytes] | None = attrs.field(init=False, default=None)
    _started: list[subprocess.Popen[bytes]] = attrs.field(init=False, factory=list)
    _modules: dict[str, list[str]] = attrs.field(init=False, factory=dict)
    _numbers: itertools.count[int] = attrs.field(init=False, factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        client = self.directory / "client.conf"
        client.write_text(_CLIENT.format(server=self._server, directory=self.directory))
        commands = [f"load-module {module}" for module in _DAEMON]
        commands += [f"set-default-sink {SPEAKERS[0]}", f"set-default-source {MICS[0]}", ""]
        self.directory.joinpath("daemon.pa").write_text("\n".join(commands))
        self.environment = {"ALSA_CONFIG_PATH": str(self._asound), "PULSE_CLIENTCONFIG": str(client)}
        lines = [self._definition(name, "playback", name) for name in (*SPEAKERS, *(f"{mic}_feed" for mic in MICS))]
        lines += [self._definition(name, "capture", name) for name in MICS]
        lines += [self._definition(f"{name}_monitor", "capture", f"{name}.monitor") for name in SPEAKERS]
        pulse = f'{{ type pulse server "{self._server}" }}'
        lines += [f"pcm.default {{ type asym playback.pcm {pulse} capture.pcm {pulse} }}\n"]
        self._asound.write_text("".join(lines))

    @property
    def _server(self) -> str:
        return f"unix:{self.directory}/pulse/native"

    @property
    def _asound(self) -> Path:
        return self.directory / "asound.conf"

    def _definition(self, name: str, direction: str, device: str) -> str:
        # Without `asym` each would be a microphone and a speaker.
        pulse = f'{{ type pulse server "{self._server}" device "{device}" }}'
        return f"pcm.{name} {{ type asym {direction}.pcm {pulse} }}\n"

    # The daemon

    @property
    def pid(self) -> int:
        """The process of the daemon."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the daemon, with the devices it has at first, and wait until it answers."""
        self._modules.clear()
        environment = {**os.environ, "HOME": str(self.directory), "XDG_RUNTIME_DIR": str(self.directory)}
        # Without clients it ends by itself: it does not outlive the tests for long if they are killed.
        options = ["-n", "-F", "daemon.pa", "--daemonize=no", "--exit-idle-time=120", "--disable-shm=true"]
        with self.directory.joinpath("pulse.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["pulseaudio", *options, "--use-pid-file=no"],
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._answers, "PulseAudio does not answer", GUARD)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"PulseAudio ended\n{self.log()}"
        info = subprocess.run(["pactl", "info"], env=self._env(), capture_output=True, timeout=GUARD)
        return info.returncode == 0

    def kill(self) -> None:
        """Kill the daemon, stopped or not; `start()` may follow."""
        if self._process is not None:
            _end(self._process)

    def stop(self) -> None:
        """Stop the daemon (SIGSTOP): its clients block for ever."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a stopped daemon run."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """Return the daemon's log."""
        return self.directory.joinpath("pulse.log").read_text(errors="replace")

    def close(self) -> None:
        """End the daemon and all that was started with it."""
        for process in self._started:
            _end(process)
        self.kill()

    # Its devices

    def pactl(self, *args: str) -> str:
        """Return the output of `pactl`."""
        done = subprocess.run(
            ["pactl", *args], env=self._env(), capture_output=True, text=True, timeout=GUARD, check=True
        )
        return done.stdout

    def load_speaker(self, name: str) -> None:
        """Plug another speaker in."""
        self._load(name, _SINK.format(name, 2))
        with self._asound.open("a") as config:
            config.write(self._definition(name, "playback", name))

    def load_mic(self, name: str) -> None:
        """Plug another microphone in, which hears the sink `<name>_feed`."""
        self._load(name, _SINK.format(f"{name}_feed", 1), _SOURCE.format(name, f"{name}_feed"))
        with self._asound.open("a") as config:
            config.write(self._definition(name, "capture", name))

    def _load(self, name: str, *modules: str) -> None:
        self._modules[name] = [self.pactl("load-module", *module.split()).strip() for module in modules]

    def unload(self, name: str) -> None:
        """Pull a speaker or a microphone out, one of the first or one that was plugged in."""
        modules = self._modules.pop(name, []) or self._loaded(name)
        for module in reversed(modules):
            self.pactl("unload-module", module)
        lines = self._asound.read_text().splitlines(keepends=True)
        self._asound.write_text("".join(line for line in lines if not line.startswith(f"pcm.{name} ")))

    def _loaded(self, name: str) -> list[str]:
        fields = [line.split("\t") for line in self.pactl("list", "short", "modules").splitlines()]
        wanted = (f"sink_name={name} ", f"sink_name={name}_feed ", f"source_name={name} ")
        return [number for number, _, arguments, *_ in fields if f"{arguments} ".startswith(wanted)]

    def source_outputs(self) -> list[str]:
        """Return the names of the sources of all recording streams, except feeds."""
        return self._users("source-outputs", "sources")

    def sink_inputs(self) -> list[str]:
        """Return the names of the sinks of all playing streams, except feeds."""
        return self._users("sink-inputs", "sinks")

    def _users(self, users: str, devices: str) -> list[str]:
        names = dict(line.split("\t")[:2] for line in self.pactl("list", "short", devices).splitlines())
        found = [names[line.split("\t")[1]] for line in self.pactl("list", "short", users).splitlines()]
        # Tests play to the feeds, and the microphones themselves record from them.
        return sorted(name for name in found if not name.endswith(("_feed", "_feed.monitor")))

    def mute_mic(self, name: str, muted: bool = True) -> None:
        """Mute a microphone as the user of the desktop would."""
        self.pactl("set-source-mute", name, str(int(muted)))

    def loop(self, volume: str) -> None:
        """Let `mic_a` hear `speaker_a`, a bit later and at a volume such as "80%", as in a room."""
        before = self._streams()
        loop = ("module-loopback", "source=speaker_a.monitor", "sink=mic_a_feed", "latency_msec=60")
        self.pactl("load-module", *loop)
        until(lambda: self._streams() - before, "nothing is looped")
        (stream,) = self._streams() - before
        self.pactl("set-sink-input-volume", stream, volume)

    def _streams(self) -> set[str]:
        return {line.split("\t")[0] for line in self.pactl("list", "short", "sink-inputs").splitlines()}

    def set_default_mic(self, name: str) -> None:
        """Make a microphone the system's default."""
        self.pactl("set-default-source", name)

    def set_default_speaker(self, name: str) -> None:
        """Make a speaker the system's default."""
        self.pactl("set-default-sink", name)

    # Sound

    def play(self, samples: Samples, sample_rate_hz: int = RATE, feed: str = "mic_a_feed") -> subprocess.Popen[bytes]:
        """Start to play mono sound to a sink; the process ends when the sound has been heard."""
        path = self.directory / f"played-{next(self._numbers)}.raw"
        path.write_bytes(samples.astype("<i2").tobytes())
        return self._start(*_PLAY, f"--device={feed}", f"--rate={sample_rate_hz}", str(path))

    def record(self, source: str = "speaker_a.monitor", sample_rate_hz: int = RATE) -> Recording:
        """Start to record mono sound, from a speaker unless another source is named."""
        path = self.directory / f"recorded-{next(self._numbers)}.raw"
        path.touch()
        process = self._start(*_RECORD, f"--device={source}", f"--rate={sample_rate_hz}", str(path))
        return Recording(process, path, sample_rate_hz)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with self.directory.joinpath("programs.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--raw", "--channels=1", "--format=s16le"],
                env=self._env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started.append(process)
        return process

    # Programs that use it

    def run(self, module: str, *args: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a module of these tests as a program of its own, which may crash without an end of all tests."""
        command = [sys.executable, "-X", "faulthandler", "-W", "error", "-m", module, *args]
        return subprocess.run(command, env=self._env(), capture_output=True, text=True, timeout=timeout)

    def _env(self) -> dict[str, str]:
        return {**os.environ, **self.environment}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(10)
