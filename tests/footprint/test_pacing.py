"""The pace of a source over minutes."""

from __future__ import annotations

import statistics

import pytest

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.media import NullSink, ToneSource
from rtvi_sync.testing import EmbeddedBot

CHUNK = 0.02


@pytest.mark.matrix
@pytest.mark.timeout(150)
def test_no_drift_in_a_minute() -> None:
    """The chunks of 60 s of audio are sent at their times: the last ones are less than 5 ms off, as a median."""
    source = ToneSource(440, duration=60.0, sample_rate_hz=16000)
    with EmbeddedBot(hang_over=120) as bot:
        client = RTVIClient(transport=WebSocketTransport(bot.ws_url), mic=source, speaker=NullSink())
        with client:
            local = client.tracks().local.audio
            assert local is not None
            frames = local.frames()
            sent = [next(frames).timestamp for _ in range(round(60.0 / CHUNK))]
            assert source.wait(5)

    offsets = [at - sent[0] - number * CHUNK for number, at in enumerate(sent)]
    # Single chunks may be late on a busy machine; drift would show in all of the last ones.
    assert abs(statistics.median(offsets[-100:])) < 0.005
