"""Every scenario finds figures with every peer whose library the tests have, however little it may measure."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from benchmarks import measure
from benchmarks.peers import AMONG, COUNTED, ENVIRONMENTS, PEERS, WHOLE, find
from benchmarks.peers.base import FRAME, Peer
from benchmarks.scenarios import SCENARIOS, figures, many, page, process, session
from benchmarks.server import Command
from benchmarks.server_frames import FRAME_BYTES
from benchmarks.tables import FURTHER, QUICK, TABLES
from tests.support.required import missing
from tests.support.slowness import Stopwatch

pytestmark = pytest.mark.matrix

PEERS_HERE = ("ours", "ref", "raw")
TINY = 0.01


def shown(scenario: str) -> set[str]:
    """Return the figures that the tables show of a scenario; there is no p99 of as little as is measured here."""
    rows = [row for table in (QUICK, FURTHER) for row in table.rows if row.scenario == scenario]
    return {row.figure for row in rows if not row.figure.startswith("p99")}


@pytest.mark.parametrize("peer", PEERS_HERE)
@pytest.mark.parametrize("scenario", sorted(session.SCENARIOS))
def test_a_scenario_of_a_session_finds_its_figures(scenario: str, peer: str, url: str) -> None:
    """A scenario finds the figures that the tables show of it, all of them more than nothing."""
    found = session.SCENARIOS[scenario](find(peer), url, TINY)

    assert shown(scenario) <= set(found)
    assert all(value > 0 for name, value in found.items() if "cpu" not in name)


def test_a_p99_needs_a_hundred_values() -> None:
    """A p99 is given from a hundred values on, because of fewer it would be the greatest one."""
    values = [float(number) for number in range(1, 101)]

    assert figures.spread(values, "s", 1) == {"p50_s": 50, "p99_s": 99}
    assert figures.spread(values[:99], "s", 1) == {"p50_s": 50}


@pytest.mark.parametrize(
    ("frames", "first", "last", "share"),
    [
        (200, 100.0, 103.98, 1.0),
        (199, 100.019, 103.979, 1.0),  # the one before and the one behind are both outside the time
        (199, 100.0, 103.98, 0.995),
        (190, 100.2, 103.98, 190 / 198),  # the first 0.16 s of it are missing
        (100, 100.0, 101.98, 100 / 199),  # no more frames arrive
        (0, 0.0, 99.98, 0.0),
    ],
)
def test_frames_in_time(frames: int, first: float, last: float, share: float) -> None:
    """Of 4 s one frame that is missing counts, and none that is due at the edges."""
    heard = {"frames": frames, "first": first, "last": last, "begun": 100.0, "seconds": 4.0}

    assert many.in_time(heard) == pytest.approx(share)


@pytest.mark.parametrize("peer", PEERS_HERE)
@pytest.mark.parametrize("scenario", sorted({*process.SCENARIOS} - {"instructions"}))  # see below
def test_a_scenario_of_a_process_finds_its_figures(scenario: str, peer: str, url: str) -> None:
    """A scenario finds numbers for each of its rows in the tables."""
    found = process.SCENARIOS[scenario](find(peer), url, TINY)

    assert shown(scenario) <= set(found)
    assert all(map(math.isfinite, found.values()))


def test_connecting_includes_the_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The imports of a library at construction count as the imports of another one at connect."""
    clock = count()

    class Importing(Peer):
        prepared = False
        heard_bytes = 0

        def __init__(self, url: str, on_event: Callable[[str], object] = str, **options: Any) -> None:
            super().__init__(url, on_event, **options)
            assert self.prepared
            next(clock)

        @classmethod
        def prepare(cls) -> None:
            cls.prepared = True

        def connect(self, timeout: float = 0) -> None: ...
        def request(self, command: str, data: object = None, timeout: float = 0) -> None: ...
        def send_audio(self, pcm: bytes) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    # One step for the construction, and one for each look at the clock.
    assert session.connect(Importing, "", 0) == {"first_ms": 3000, "connect_ms": 3000, "close_ms": 1000}


@pytest.mark.parametrize("peer", PEERS_HERE)
def test_many_sessions_are_measured_together(peer: str, url: str) -> None:
    """Three sessions are served in real time, and have every figure that the tables show of many."""
    with Stopwatch() as watch:
        found = many.sessions(find(peer), url, TINY, number=3)

    assert shown("sessions-1") | shown("sessions-500") <= set(found)
    assert all(map(math.isfinite, found.values()))
    assert found["sound_share"] == pytest.approx(1, abs=0.1 * watch.slower)
    assert found["threads"] >= 2


@pytest.mark.parametrize("peer", PEERS_HERE)
def test_sessions_with_audio_of_the_applications_own(peer: str, url: str) -> None:
    """Three sessions hand each audio frame to the application, which pushes the frames to send."""
    with Stopwatch() as watch:
        found = many.sessions(find(peer), url, TINY, number=3, own_audio=True)

    assert shown("own-audio-100") <= set(found)
    assert 0 < found["audio_p50_ms"] < 1000 * watch.slower
    assert found["sound_share"] == pytest.approx(1, abs=0.1 * watch.slower)
    assert found["taken_share"] == pytest.approx(1, abs=0.1 * watch.slower)


def test_what_recordings_add(url: str) -> None:
    """Three sessions are recorded, and the figures give the cost of that for each; nothing is lost."""
    found = many.recorded(find("ours"), url, TINY, number=3)

    assert found.keys() == {"cpu_percent_each", "cpu_percent_more_each", "kb_more_each", "lost_seconds", "kb_peak"}
    assert found["lost_seconds"] == 0


@pytest.mark.real
def test_the_page_of_an_hour() -> None:
    """The page is opened in a browser, and has handled a first key."""
    if shutil.which("chromium") is None:
        missing("Chromium is not installed: run `python3 run.py test --real`")
    found = page.hour(find("ours"), "", TINY)

    assert 0 < found["loaded_ms"] < found["used_ms"]
    assert 0 < found["megabytes"] <= 4


@pytest.mark.real
def test_instructions_are_counted(url: str) -> None:
    """A program takes millions of instructions; ours more than the floor, whose library is the standard one."""
    if shutil.which("valgrind") is None:
        missing("valgrind is not installed: run `python3 run.py test --real` as root")
    ours, raw = (process.instructions(find(peer), url, TINY)["millions"] for peer in ("ours", "raw"))

    assert 10 < raw < ours


def test_without_a_program_that_counts_there_is_a_reason(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without valgrind and perf, instructions cannot be counted, and the round says so."""
    monkeypatch.setenv("PATH", "")

    with pytest.raises(FileNotFoundError, match="perf"):
        process.instructions(find("raw"), url, TINY)


@pytest.mark.parametrize(
    ("peer", "scenario"),
    [("ours-default", "events"), ("ours-signal", "events"), ("ours-events", "ask")],
)
def test_a_variant_is_measured_in_a_process_of_its_own(peer: str, scenario: str, url: str) -> None:
    """The program that measures once prints the figures of the peer that it is told, and nothing else."""
    found = measure.measure_once(sys.executable, peer, scenario, url, TINY)
    assert found.keys() >= shown(scenario)
    assert all(map(math.isfinite, found.values()))


def test_only_ours_has_compiled_parts() -> None:
    """The peer without them has no orjson and no mask of websockets' extension module, the other has both."""
    ask = (
        "import sys; from benchmarks.peers import find; find(%r); from tests.support import part_probes; "
        "print(bool(sys.modules.get('orjson')), part_probes.has_compiled_mask())"
    )
    facts = [
        subprocess.run(
            [sys.executable, "-c", ask % peer], capture_output=True, text=True, check=True, cwd=measure.ROOT
        ).stdout.split()
        for peer in ("ours", "ours-default")
    ]

    assert facts == [["True", "True"], ["False", "False"]]


@pytest.mark.parametrize("peer", PEERS_HERE)
def test_sound_goes_both_ways(peer: str, url: str) -> None:
    """A peer that talks sends 50 frames a second, and one that hears gets every byte it asks for."""
    events: list[str] = []
    client = find(peer)(url, events.append, talking=True, hearing=True)
    client.connect()
    client.request(Command.AUDIO, {"n": 50})
    client.request(Command.HEARD, {"times": True})
    client.send_audio(FRAME)
    deadline = time.monotonic() + 10
    heard: list[float] = []
    while len(heard) < 5 and time.monotonic() < deadline:
        heard += client.request(Command.HEARD, {"times": True})["times"]
    size = client.heard_bytes
    client.close()

    assert len(heard) >= 5
    assert size == 50 * FRAME_BYTES
    assert [float(stamp) <= time.monotonic() for stamp in events] == [True]


def test_silence_at_the_end_is_heard(url: str) -> None:
    """A silent peer is noticed, before and after the figures are requested, and so are the missing frames."""
    client = find("raw")(url)
    client.connect()
    client.send_audio(FRAME)
    begun = client.request(Command.CLOCK)["now"]
    while (spent := client.request(Command.CLOCK)["now"] - begun) < 0.1:
        pass
    first = client.request(Command.HEARD)
    client.send_audio(FRAME)
    second = client.request(Command.HEARD)
    client.close()

    assert first["gap"] >= 0.1
    assert first["seconds"] >= 0.1
    assert second["gap"] >= spent
    assert (first["frames"], second["frames"]) == (1, 1)


@pytest.mark.parametrize("peer", PEERS_HERE)
def test_a_silent_server_is_given_up(peer: str, url: str) -> None:
    """A request that is not answered, and a bot that is never ready, end in an error at their limits."""
    client = find(peer)(url)
    client.connect()
    with pytest.raises(Exception, match=r"(?i)respon|answer"):
        client.request(Command.SILENCE, timeout=0.05)
    client.close()

    mute = find(peer)(f"{url}?mute")
    with pytest.raises(Exception, match=r"(?i)ready"):
        mute.connect(0.05)
    mute.close()


def test_what_a_process_fails_with_is_kept(url: str) -> None:
    """A measurement that cannot be made is told by the last line of its error, and stops no other one."""
    assert "error: argument peer" in measure.measure_once(sys.executable, "nobody", "events", url, TINY)["failed"]


def test_rounds_begin_with_another_peer_each() -> None:
    """Every peer is measured once a round, each round starts with another one, and results keep their round."""
    said: list[str] = []
    places = {name: (sys.executable, name) for name in ("ref", "raw")}

    found = measure.measure("request", places, 2, 0.0, said.append)

    assert [line.split(":")[0] for line in said] == [
        "request 1/2 ref",
        "request 1/2 raw",
        "request 2/2 raw",
        "request 2/2 ref",
    ]
    assert {name: len(rounds) for name, rounds in found.items()} == {"ref": 2, "raw": 2}


def test_names_are_those_of_peers_and_scenarios() -> None:
    """Tables and environments speak of peers that there are, and of every scenario: each is measured for a row."""
    rows = [row for table in TABLES.values() for row in table.rows]
    assert {row.scenario for row in rows} == set(SCENARIOS) == set(AMONG)
    columns = {peer for table in TABLES.values() for peer in table.peers}
    assert {row.peer for row in rows} | {row.over for row in rows} - {""} | columns <= set(PEERS)
    assert {*ENVIRONMENTS, *(peer for peers in AMONG.values() for peer in peers)} <= set(PEERS)
    assert {*WHOLE, *COUNTED} <= set(SCENARIOS)
