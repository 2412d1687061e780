"""A process that gevent has patched, as gunicorn's gevent workers are."""

from __future__ import annotations

import sys

from rtvi_sync.testing import EmbeddedBot
from tests.support.processes import python, rest_of
from tests.support.ticking import TICKING

SCRIPT = f"""{TICKING}
    import sys
    from rtvi_sync import RTVIClient, WebSocketTransport
    from rtvi_sync.media import BytesSink, ToneSource
    from tests.support.threads import thread_names

    sink = BytesSink()
    client = RTVIClient(transport=WebSocketTransport(sys.argv[1]), mic=ToneSource(duration=0.3), speaker=sink,
                        connect_timeout=10)
    with client.events("bot-stopped-speaking", timeout=10) as events:
        client.connect()
        print(client.send_client_request("echo", [1, 2]))
        next(events)
    client.disconnect()
    ticker.kill()
    print(len(sink.pcm) > 0, len(ticks) > 10, client.state, thread_names())
"""


def test_a_session_in_a_patched_process() -> None:
    """Requests, events and audio work in greenlets while other greenlets run, and nothing is left."""
    with EmbeddedBot(hangover=0.2) as bot, python(SCRIPT, bot.ws_url, executable=sys.executable) as process:
        out, err = rest_of(process)

    assert (out, err) == ("[1, 2]\nTrue True disconnected []\n", "")
