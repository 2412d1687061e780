"""The video of the transport of `samples/video_transport`, which readers copy."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from rtvi_sync import DisconnectedError, RTVIClient
from rtvi_sync.media import VideoFrame
from samples.video_transport import transport as sample
from samples.video_transport.transport import VideoLineTransport
from tests.support.slowness import GUARD, takes
from tests.support.wire import ContractBot

SIZE = 1000 * 1000 * 3  # of a picture, more than the system takes unread


class Pictures:
    """A source of large pictures without end."""

    def read(self) -> VideoFrame:
        return VideoFrame(image=bytes(SIZE), width=1000, height=1000, timestamp=time.monotonic())

    def close(self) -> None:
        """Do nothing: nothing is open."""


class FarEnd(socketserver.ThreadingTCPServer):
    """A bot that reads pictures only as long as it may."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Line)
        self.seen: list[tuple[dict[str, object], int]] = []
        self.changed = threading.Condition()
        self.reads = threading.Event()
        self.reads.set()

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen) >= count, GUARD)


class Line(socketserver.StreamRequestHandler):
    """One connection: for messages, or for pictures."""

    server: FarEnd

    def handle(self) -> None:
        bot = ContractBot()
        for text in self.rfile:
            message = json.loads(text)
            if message["type"] != "picture":
                for answer in bot(text.decode()):
                    self.wfile.write(answer.encode() + b"\n")
                continue
            with self.server.changed:
                self.server.seen.append((message, len(self.rfile.read(message["bytes"]))))
                self.server.changed.notify_all()
            assert self.server.reads.wait(GUARD)


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch) -> Iterator[FarEnd]:
    """Yield a bot; pictures are sent as they are, without OpenCV."""
    monkeypatch.setattr(sample, "_jpeg", lambda frame, quality: frame.image)
    with FarEnd() as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server
        server.reads.set()
        server.shutdown()
        serving.join()


def client_of(end: FarEnd) -> RTVIClient:
    transport = VideoLineTransport(f"tcp://127.0.0.1:{end.server_address[1]}")
    return RTVIClient(transport=transport, cam=Pictures(), enable_cam=True, connect_timeout=GUARD)


def test_the_bot_sees(end: FarEnd) -> None:
    """Each picture arrives whole, with its size, in the next session too."""
    client = client_of(end)
    for _ in range(2):
        end.seen.clear()
        with client:
            end.wait_for(3)
        about = {"type": "picture", "of": "cam", "width": 1000, "height": 1000, "bytes": SIZE}
        assert end.seen[:3] == [(about, SIZE)] * 3


def test_a_bot_that_reads_no_pictures(end: FarEnd) -> None:
    """Messages still flow, and the session ends in time."""
    end.reads.clear()
    with client_of(end) as client:
        end.wait_for(1)
        assert client.send_client_request("echo", "x", timeout=GUARD) == "x"
        with takes(3.0):
            client.disconnect()
    assert len(end.seen) == 1


def test_no_pictures_without_a_session(end: FarEnd) -> None:
    """Pictures before and after a session are refused, and nothing is connected."""
    transport = VideoLineTransport(f"tcp://127.0.0.1:{end.server_address[1]}")
    picture = Pictures().read()
    with pytest.raises(DisconnectedError, match="closed"):
        transport.send_video(picture)
    with RTVIClient(transport=transport, connect_timeout=GUARD):
        transport.send_screen(picture)
        end.wait_for(1)
    assert end.seen[0][0]["of"] == "screen"
    with pytest.raises(DisconnectedError, match="closed"):
        transport.send_video(picture)
    assert len(end.seen) == 1
