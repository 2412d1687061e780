"""The means of measuring WebRTC: the bot that costs little, and the comparison of chirps with their echoes."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Iterator

import aiortc
import pytest

from benchmarks import measure, packet_bot, rtc_bots
from benchmarks.peers import AMONG
from benchmarks.peers.ours_webrtc import OursByWebRTC
from benchmarks.scenarios import echo, webrtc
from benchmarks.tables import WEBRTC
from tests.support import part_probes
from tests.support.required import missing
from tests.support.slowness import Stopwatch

from .conftest import python_of

pytestmark = pytest.mark.matrix

TINY = 0.05
FIGURES = {row.scenario: set[str]() for row in WEBRTC.rows}
for row in WEBRTC.rows:
    FIGURES[row.scenario].add(row.figure)


@pytest.fixture(scope="module")
def packets() -> Iterator[str]:
    """Yield the address of the bot that costs little."""
    with rtc_bots.packet_bot() as url:
        yield url


@pytest.fixture(scope="module")
def pipecat() -> Iterator[str]:
    """Yield the address of Pipecat's runner."""
    if rtc_bots.pipecat_python() is None:
        missing("Pipecat is not installed: run `python3 run.py test --matrix`")
    with rtc_bots.pipecat_bot() as url:
        yield url


def test_lost_packets_are_heard_of(packets: str) -> None:
    """Half of the bot's packets are lost, and there is sound all the time."""
    with Stopwatch() as watch:
        found = webrtc.loss(OursByWebRTC, packets, 0.05, share=0.5)

    assert found.keys() >= FIGURES["webrtc-loss-5"]
    # A busy machine decides how much arrives in time, and how much is concealed.
    assert found["sound_share"] == pytest.approx(1, abs=0.2 * watch.slower)
    assert found["concealed_share"] == pytest.approx(0.5, abs=0.2 * watch.slower)


def test_many_sessions_are_counted(packets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Speech in both directions and the CPU time of each session are measured for several sessions."""
    monkeypatch.setattr(webrtc, "SETTLE", 0.5)
    with Stopwatch() as watch:
        found = webrtc.sessions(OursByWebRTC, packets, 0.0, number=2)

    assert found.keys() >= FIGURES["webrtc-12"]
    # The machine decides how much arrives in time, and how much arrived before.
    assert 0 < found["sent_share"] < 1.2 * watch.slower
    assert 0 < found["heard_share"] < 1.2 * watch.slower
    assert found["cpu_percent_each"] > 0


def test_the_bot_is_as_patient_as_the_package() -> None:
    """The bot waits as long as the package does, so that its own time-out on a busy machine is not measured."""

    async def patient() -> bool:
        near, far = aiortc.RTCPeerConnection(), packet_bot.Session([], 0.0)
        near.addTransceiver("audio")
        await near.setLocalDescription(await near.createOffer())
        await far.answer({"sdp": near.localDescription.sdp})
        ice = far._pc.getTransceivers()[0].sender.transport.transport
        await asyncio.gather(near.close(), far._pc.close())
        return str(part_probes.ice_connection_of(ice).query_consent.__module__).startswith("rtvi_sync.")

    assert asyncio.run(patient())


def sent_back(latency: float, gain: float, rate_hz: int = echo.SENT_HZ) -> dict[str, float]:
    """Compare chirps with their echoes, in chunks of 20 ms, with some noise."""
    pcm, size, noise = echo.speech(), 640, random.Random(1)
    samples = [round(gain * sample + noise.gauss(0, 20)) for (sample,) in struct.iter_unpack("<h", pcm)]
    back = struct.pack(f"<{len(samples)}h", *samples)
    taken = [(100 + place / 32000, place // 2) for place in range(0, len(pcm), size)]
    heard = [(100 + latency + place / 32000, back[place : place + size]) for place in range(0, len(pcm), size)]
    return echo.summary(echo.compare(taken, heard, rate_hz))


def test_an_echo_is_recognized() -> None:
    """The delay of an echo, its likeness and its loudness are measured."""
    found = sent_back(0.123, 0.7)

    assert found["p50_ms"] == pytest.approx(123, abs=0.1)
    assert found["most_ms"] == pytest.approx(123, abs=0.1)
    assert found["gain"] == pytest.approx(0.7, abs=0.01)
    assert 0.99 < found["correlation"] < 1


def test_what_is_no_echo_is_told_apart() -> None:
    """Sound of another rate is not alike, and a missing echo is an error."""
    assert sent_back(0.1, 0.7, 24_000)["correlation"] < 0.7
    with pytest.raises(RuntimeError, match="chirp 1 has not come back"):
        echo.compare([(100.0, 0)], [(200.0, bytes(640))], echo.SENT_HZ)


def test_a_time_line_with_a_hole() -> None:
    """A chunk that is missing is missing; one that is late makes a gap, and nothing later for good."""
    chunks = [(n / 50, 0.02) for n in range(400) if n != 100]
    chunks[200] = (chunks[200][0] + 0.05, 0.02)
    found = webrtc.timeline(sorted(chunks))

    assert found["sound_share"] == pytest.approx(398 / 399)
    assert found["gap_ms"] == pytest.approx(40)
    assert found["later_ms"] == pytest.approx(20)


def test_peers_of_the_scenarios() -> None:
    """Scenarios with the bot of packets have the package as their only peer, and each WebRTC scenario has peers."""
    assert {AMONG[scenario] for scenario in webrtc.OF_PACKETS} == {("ours-webrtc",)}
    assert {scenario for scenario in AMONG if scenario.startswith("webrtc")} == set(webrtc.SCENARIOS)


def test_without_pipecat_its_scenarios_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every peer has the reason."""
    monkeypatch.delenv("RTVI_PEER_PIPECAT", raising=False)

    found = measure.measure("webrtc-echo", {"ours": ("python", "ours")}, 1, TINY, print)

    assert found == {"ours": [{"failed": "there is no environment PIPECAT, which has the bot"}]}


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("scenario", "peer"), [(scenario, peer) for scenario in webrtc.OF_PIPECAT for peer in AMONG[scenario]]
)
def test_a_real_bot_sends_back(scenario: str, peer: str, pipecat: str) -> None:
    """Every client finds the figures of the tables, more than nothing each."""
    found = measure.measure_once(python_of(peer), peer, scenario, pipecat, TINY)

    assert "failed" not in found
    assert found.keys() >= FIGURES[scenario]
    assert all(found[figure] > 0 for figure in FIGURES[scenario] if figure != "cpu_percent_more")


@pytest.mark.matrix
def test_what_is_left_of_sessions(packets: str) -> None:
    """Nothing of threads, descriptors and tasks."""
    found = webrtc.connects(OursByWebRTC, packets, TINY)

    assert found.keys() == FIGURES["webrtc-connects"]
    assert (found["threads_left"], found["descriptors_left"], found["tasks_left"]) == (0, 0, 0)
