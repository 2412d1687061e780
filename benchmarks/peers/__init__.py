"""The client libraries that are measured beside each other: one module each, in which a subclass of `Peer` uses it.

Each runs in a process of its own, with a Python that may have nothing but that library and protobuf: so the modules
here, `scenarios` and `server` import the standard library, and each peer its own library alone.
"""

from __future__ import annotations

import importlib
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
    "websockets": "websockets_sync:WebsocketsSync",
    "picows": "picows_uvloop:Picows",
    "pipecat-session": "pipecat_clients:PipecatSession",
    "pipecat-pipeline": "pipecat_clients:PipecatPipeline",
    "client-js": "client_js:ClientJs",
    "client-js-webrtc": "client_js.webrtc:ClientJsByWebRTC",
}

#: Peer -> the environment that has its library, where that is not the runner's. `run.py bench` makes it, and tells the
#: runner where its Python is by the variable `RTVI_PEER_` + this name.
ENVIRONMENTS: Final = {
    "websockets": "WEBSOCKETS",
    "picows": "PICOWS",
    "pipecat-session": "PIPECAT",
    "pipecat-pipeline": "PIPECAT",
    "client-js": "CLIENT_JS",
    "client-js-webrtc": "CLIENT_JS",
}

_WEBRTC: Final = ("webrtc-connect", "webrtc-echo", "webrtc-cpu", "webrtc-video")
_OF_PACKETS: Final = ("webrtc-loss-1", "webrtc-loss-5", "webrtc-12", "webrtc-20", "webrtc-connects")

#: Of those that differ from another one in few scenarios: their names. All else is that of the other.
ONLY: Final = {
    "ours-signal": ("events", "latency-1000"),
    "ours-events": ("events", "latency-1000", "ask"),
    "ours-webrtc": (*_WEBRTC, *_OF_PACKETS),
    "client-js-webrtc": _WEBRTC,
}

_PYTHON: Final = ("ours", "ours-default", "ref", "websockets", "picows", "pipecat-session", "pipecat-pipeline")

#: Of the scenarios that are not for all: the peers that they are measured with.
AMONG: Final = {
    **dict.fromkeys(("busy-event", "busy-request", "import", "jitter", "quiet", "timeouts"), ("ours", "ref")),
    "ask": ("ours", "ours-events", "ref", "raw"),
    **dict.fromkeys(("drift", "growth"), ("ours",)),
    "system-calls": (*_PYTHON, "raw"),
    "program": ("ours", "ours-default", "ref", "websockets"),
    "connect-again": ("ours", "ours-default", "ref", "websockets", "picows"),
    **dict.fromkeys(("sessions-1", "sessions-10", "sessions-50", "sessions-100"), _PYTHON),
    # Those that fell behind before are left out: it takes minutes.
    "sessions-200": tuple(peer for peer in _PYTHON if peer != "pipecat-pipeline"),
    **dict.fromkeys(("sessions-500", "sessions-1000"), ("ours", "picows")),
    **dict.fromkeys(
        ("burst", "own-audio-100", "own-audio-200"), ("ours", "ours-default", "ref", "websockets", "picows")
    ),
    **dict.fromkeys(("burst-wav", "burst-sink", "burst-slow-sink"), ("ours",)),
    # WebSocket of ours beside it, which has no pictures, and loses nothing.
    **dict.fromkeys(_WEBRTC[:3], ("ours", "ours-webrtc", "client-js-webrtc")),
    "webrtc-video": ("ours-webrtc", "client-js-webrtc"),
    **dict.fromkeys(_OF_PACKETS, ("ours-webrtc",)),
}

#: Scenarios that are measured only if they are asked for by name: they take long.
LONG: Final = ("drift",)

#: What is always measured as a whole: its figures say of how much they are, or little of it would say nothing.
WHOLE: Final = (
    "burst-slow-sink",
    "drift",
    "growth",
    "quiet",
    "mouth-to-ear",
    "webrtc-loss-1",
    "webrtc-loss-5",
    "webrtc-connects",
)


def find(name: str) -> type[Peer]:
    """Return the class of a peer.

    Raises:
        ImportError: its library is not here.
        KeyError: there is no such peer.
    """
    module, _, class_name = PEERS[name].partition(":")
    peer: type[Peer] = getattr(importlib.import_module(f"{__name__}.{module}"), class_name)
    return peer
