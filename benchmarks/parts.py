"""The parts of the way of a message, each alone: `tests/behaviour/footprint` counts their instructions and blocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.serial_queue import SerialQueue
from rtvi_sync.concurrency.worker_pool import WorkerPool
from rtvi_sync.events import Event, RTVIEvent
from rtvi_sync.protocol import envelope, frames
from rtvi_sync.protocol.dialects import INBOUND, decode_payload
from rtvi_sync.protocol.engine import Engine
from rtvi_sync.signals import EventSignal
from rtvi_sync.transports.websocket_frames import FrameReader, masked_frame

from .server_frames import FRAME_BYTES, SAMPLE_RATE_HZ

#: Calls in a row, so that the loop around them does not count.
IN_A_ROW: Final = 100
_BINARY: Final = 2
TEXT: Final = json.dumps(
    {
        "label": "rtvi-ai",
        "type": "user-transcription",
        "data": {
            "text": "What is the weather like tomorrow?",
            "final": False,
            "timestamp": "2026-01-01T12:00:00.000+00:00",
            "user_id": "user",
        },
    }
)
AUDIO: Final = frames.AudioRawFrame(audio=bytes(range(128)) * (FRAME_BYTES // 128), sample_rate=SAMPLE_RATE_HZ)


def _reading(payload: bytes) -> Callable[[], object]:
    head = b"\x82\x7e" + len(payload).to_bytes(2, "big")
    data, reader = (head + payload) * IN_A_ROW, FrameReader(1 << 24)

    def read() -> None:
        for _ in reader.runs(data):
            pass

    return read


def _times(call: Callable[[], object]) -> Callable[[], None]:
    def many() -> None:
        for _ in range(IN_A_ROW):
            call()

    return many


def _posting() -> Callable[[], object]:
    queue, workers, now = SerialQueue(manual=True), WorkerPool(), Deadline(0)

    def post() -> None:
        for _ in range(IN_A_ROW):
            queue.post(int, workers, 100)
        queue.run_queued(now)

    return post


def _sending(receivers: int) -> Callable[[], object]:
    signal, sender = EventSignal(RTVIEvent.USER_TRANSCRIPTION), object()
    event = Event(type=RTVIEvent.USER_TRANSCRIPTION, received_at=0.0)
    for _ in range(receivers):
        signal.connect(lambda _, event: event, weak=False)
    return _times(lambda: signal.send(sender, event=event))


def parts() -> dict[str, Callable[[], object]]:
    """Return the parts by name; each function runs its part `IN_A_ROW` times."""
    message, audio = frames.encode(frames.MessageFrame(data=TEXT)), frames.encode(AUDIO)
    engine, data, spec = Engine({}), json.loads(TEXT)["data"], INBOUND["user-transcription"]
    return {
        "frame reader, a message": _reading(message),
        "frame reader, an audio frame": _reading(audio),
        "frame writer, an audio frame": _times(lambda: masked_frame(_BINARY, audio)),
        "codec, decode a message": _times(lambda: frames.decode(message)),
        "codec, decode an audio frame": _times(lambda: frames.decode(audio)),
        "codec, encode a message": _times(lambda: frames.encode(frames.MessageFrame(data=TEXT))),
        "codec, encode an audio frame": _times(lambda: frames.encode(AUDIO)),
        "envelope, decode": _times(lambda: envelope.decode(TEXT)),
        "payload, decode": _times(lambda: decode_payload(spec, data)),
        "engine, an event": _times(lambda: engine.receive(TEXT)),
        "queue, post and run": _posting(),
        "signal, no receiver": _sending(0),
        "signal, one receiver": _sending(1),
    }
