"""The speech of real Pipecat bots reaches a file whole, however the line behaves."""

from __future__ import annotations

import random
import wave
from pathlib import Path

import pytest

from rtvi_sync import WebSocketTransport
from rtvi_sync.media import BytesSource, WavSink
from rtvi_sync.testing import FaultProxy, faults
from tests.support.waiting import until

from .clients import client_of
from .conftest import BotServer

RATE_HZ = 16_000


@pytest.mark.parametrize(
    ("seconds", "stalled"), [(6.0, 3.0), pytest.param(20.0, 6.0, marks=pytest.mark.matrix)], ids=["short", "long"]
)
def test_a_line_that_stands_still(pipecat_echo: BotServer, tmp_path: Path, seconds: float, stalled: float) -> None:
    """The bot speaks on in real time while its line stands still; the delayed audio arrives at once, and all is
    kept."""
    said = random.Random(3).randbytes(2 * round(seconds * RATE_HZ))
    source, path = BytesSource(said, RATE_HZ), tmp_path / "a.wav"
    with FaultProxy.before(pipecat_echo.ws_url) as proxy:
        transport = WebSocketTransport(proxy.url(pipecat_echo.ws_url))
        client = client_of(pipecat_echo, transport=transport, params=None, mic=source, speaker=WavSink(path))
        with client:
            until(lambda: client.stats().audio_received > 1.0)
            hole = proxy.connections[0].inject(faults.BlackHole(), "to_client")
            begun = client.stats().audio_sent  # in real time: the clock of this test
            until(lambda: client.stats().audio_sent - begun > stalled)
            hole.lift()
            until(lambda: client.stats().audio_received >= seconds)
        assert client.stats().speaker_dropped_seconds == 0
    with wave.open(str(path)) as reader:
        kept = reader.readframes(reader.getnframes())
    assert reader.getframerate() == RATE_HZ
    assert kept[: len(said)] == said
