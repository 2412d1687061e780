"""The pace of a source over minutes."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import EvalTransport, RTVIClient, WebSocketTransport
from rtvi_sync.media import NullSink, ToneSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD

CHUNK = 0.02


@pytest.mark.matrix
@pytest.mark.timeout(150)
@pytest.mark.parametrize("transport_class", [WebSocketTransport, EvalTransport])
def test_no_drift_in_a_minute(transport_class: Any) -> None:
    """The chunks of 60 s of audio are sent at their times: the last ones are less than 5 ms off, if punctual."""
    source = ToneSource(440, duration=60.0, sample_rate_hz=16000)
    with EmbeddedBot(hangover=120) as bot:
        client = RTVIClient(transport=transport_class(bot.ws_url), mic=source, speaker=NullSink())
        with client:
            local = client.tracks().local.audio
            assert local is not None
            frames = local.frames()
            sent = [next(frames).timestamp for _ in range(round(60.0 / CHUNK))]
            assert source.wait(GUARD)

    offsets = [at - number * CHUNK for number, at in enumerate(sent)]
    # On a busy machine most chunks may be late, the first one among them; drift would show in the most punctual ones.
    assert abs(min(offsets[-500:]) - min(offsets[:500])) < 0.005
