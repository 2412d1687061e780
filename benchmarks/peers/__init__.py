"""The client libraries that are measured beside each other: one module each, in which a subclass of `Peer` uses it.

Each runs in a process of its own, with a Python that may have nothing but that library and protobuf: so the modules
here, `scenarios` and `server` import the standard library, and each peer its own library alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final

from .base import Peer

#: Name of a peer, as the runner's tables show it -> its module below this package, and its class.
PEERS: Final = {
    "ours": "ours:Ours",
    "ours-default": "ours_default:OursDefault",
    "ours-signal": "ours:OursBySignal",
    "ours-events": "ours:OursByEvents",
    "ours-webrtc": "ours_webrtc:OursByWebRTC",
    "ref": "ref:Ref",
    "raw": "raw:Raw",
    "picows": "picows_uvloop:Picows",
    "pipecat-pipeline": "pipecat_clients:PipecatPipeline",
    "client-js-webrtc": "client_js.webrtc:ClientJsByWebRTC",
}

#: Peer -> the environment that has its library, where that is not the runner's. `run.py bench` makes it, and tells the
#: runner where its Python is by the variable `RTVI_PEER_` + this name.
ENVIRONMENTS: Final = {
    "picows": "PICOWS",
    "pipecat-pipeline": "PIPECAT",
    "client-js-webrtc": "CLIENT_JS",
}

_TABLE: Final = ("ours", "ref", "picows", "pipecat-pipeline")
_RTC: Final = ("ours-webrtc", "client-js-webrtc")

#: Scenario -> the peers that it is measured with.
AMONG: Final[dict[str, Sequence[str]]] = {
    **dict.fromkeys(("program", "import", "own-audio-100"), _TABLE),
    **dict.fromkeys(("instructions", "connect", "latency-50", "latency-1000"), (*_TABLE, "raw")),
    "events": (*_TABLE, "raw", "ours-default", "ours-signal"),
    "ask": ("ours", "ours-events", "ref"),
    **dict.fromkeys(("request", "audio-down", "audio-up", "busy-event", "busy-request"), ("ours", "ref")),
    **dict.fromkeys(("jitter", "quiet", "timeouts", "sessions-1", "sessions-100"), ("ours", "ref")),
    **dict.fromkeys(("sessions-500", "recorded-100", "page-hour"), ("ours",)),
    **dict.fromkeys(("webrtc-connect", "webrtc-echo", "webrtc-cpu", "webrtc-video"), _RTC),
    **dict.fromkeys(("webrtc-loss-5", "webrtc-12", "webrtc-connects"), ("ours-webrtc",)),
}

#: Scenarios that are always measured as a whole: a part would give no figures, or figures that say nothing.
WHOLE: Final = ("quiet", "webrtc-loss-5", "webrtc-connects")

#: Scenarios that count instead of timing: one round is enough, with several peers at once.
COUNTED: Final = ("instructions",)


def find(name: str) -> type[Peer]:
    """Return the class of a peer.

    Raises:
        ImportError: its library is not here.
        KeyError: there is no such peer.
    """
    module, _, class_name = PEERS[name].partition(":")
    peer: type[Peer] = getattr(importlib.import_module(f"{__name__}.{module}"), class_name)
    return peer
