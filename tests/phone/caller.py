"""A caller at the end of a Twilio Media Stream, and the bridge in this process that is called.

The messages follow https://www.twilio.com/docs/voice/media-streams/websocket-messages. `Caller.tick()` does Twilio's
part between them, 20 ms of the call each time, so a test and not a clock says how much is played.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from websocket import ABNF, WebSocket, WebSocketConnectionClosedException, create_connection
from websockets.sync.server import serve

from samples.phone_bridge.bridge import hold_call
from tests.support.slowness import GUARD

#: Bytes of µ-law in 20 ms, and a byte of silence.
CHUNK = 160
SILENCE = b"\xff"


@contextlib.contextmanager
def bridge_to(url: str) -> Iterator[str]:
    """Run the bridge to the bot at `url`; yield its URL."""
    with serve(functools.partial(hold_call, url=url), "127.0.0.1", 0, compression=None) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/"
    serving.join()
    for end in (server.shutdown_watcher, server.shutdown_notifier):
        if isinstance(end, int):  # before websockets 17, which has sockets, the library leaves them open
            os.close(end)


class Caller:
    """A call over Twilio Media Streams, as a context manager. One thread uses it.

    Attributes:
        arrived: for each audio message the ticks of the call before it, and the bytes of µ-law.
        heard: the µ-law that was played to the caller.
        unplayed: the buffer: bytes of µ-law, and the names of marks.
        cleared: the bytes that each `clear` has discarded.
        returned: the names of the marks that were sent back.
        close_code: of the bridge's close frame, once the bridge has ended the call.
    """

    def __init__(self, url: str, stream: str = "MZ18ad3ab5a668481ce02b83e7395059f0") -> None:
        self._url = url
        self._open = contextlib.ExitStack()
        self.arrived: list[tuple[int, int]] = []
        self.heard = b""
        self.unplayed: deque[bytes | str] = deque()
        self.cleared: list[int] = []
        self.returned: list[str] = []
        self.close_code: int | None = None
        self._stream = stream
        self._says = bytearray()
        self._sequence = self._chunk = self._received = 0

    def __enter__(self) -> Caller:
        self.websocket: WebSocket = create_connection(self._url, timeout=GUARD, enable_multithread=False)
        self._open.callback(self.websocket.shutdown)
        self.send({"event": "connected", "protocol": "Call", "version": "1.0.0"})
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start(self) -> None:
        """Announce the stream, as Twilio does once."""
        self._report(
            "start",
            start={
                "accountSid": "AC00000000000000000000000000000000",
                "streamSid": self._stream,
                "callSid": "CA00000000000000000000000000000000",
                "tracks": ["inbound"],
                "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
                "customParameters": {},
            },
        )

    def say(self, mulaw: bytes) -> None:
        """Say this next."""
        self._says += mulaw

    def press(self, key: Any) -> None:
        """Press a key of the telephone, or report one that there is not."""
        self._report("dtmf", dtmf={"track": "inbound_track", "digit": key})

    def tick(self) -> None:
        """Go 20 ms on: take the bridge's messages, play 20 ms of them, and send as much of the caller's voice."""
        with contextlib.suppress(WebSocketConnectionClosedException, ConnectionError):  # told by `close_code`
            self._take()
            self._play()
            chunk = bytes(self._says[:CHUNK]).ljust(CHUNK, SILENCE)
            del self._says[:CHUNK]
            self._chunk += 1
            media = {"track": "inbound", "chunk": str(self._chunk), "timestamp": str(20 * self._chunk)}
            self._report("media", media={**media, "payload": base64.b64encode(chunk).decode()})

    def gap(self) -> int:
        """Return by how many milliseconds of the call audio was too late to follow, in time, the first audio."""
        first, before = self.arrived[0]
        return max(20 * (tick - first) - (received - before) // 8 for tick, received in self.arrived)

    def hang_up(self) -> None:
        """End the call as Twilio tells it."""
        self._report("stop", stop={"accountSid": "AC00000000000000000000000000000000"})

    def send(self, message: Any) -> None:
        """Send a message as it is, or an object as JSON."""
        if isinstance(message, bytes):
            self.websocket.send_binary(message)
        else:
            self.websocket.send(message if isinstance(message, str) else json.dumps(message))

    def _report(self, event: str, **content: Any) -> None:
        self._sequence += 1
        self.send({"event": event, "sequenceNumber": str(self._sequence), "streamSid": self._stream, **content})

    def _take(self) -> None:
        while (text := self._next_text()) is not None:
            message = json.loads(text)
            assert message.pop("streamSid") == self._stream
            match message:
                case {"event": "media", "media": {"payload": payload}}:
                    self.arrived.append((self._chunk, self._received))
                    self.unplayed.append(base64.b64decode(payload, validate=True))
                    self._received += len(self.unplayed[-1])
                case {"event": "mark", "mark": {"name": name}}:
                    self.unplayed.append(name)
                case {"event": "clear"}:
                    self.cleared.append(sum(len(each) for each in self.unplayed if isinstance(each, bytes)))
                    for name in [each for each in self.unplayed if isinstance(each, str)]:
                        self._return(name)
                    self.unplayed.clear()
                case _:
                    raise AssertionError(f"Twilio knows no such message: {message}")

    def _next_text(self) -> bytes | None:
        """Return the next received message."""
        self.websocket.settimeout(0)
        try:
            opcode, content = self.websocket.recv_data()
        except BlockingIOError:
            return None
        except (WebSocketConnectionClosedException, ConnectionError):
            self.close_code = self.close_code or 1006
            raise
        finally:
            self.websocket.settimeout(GUARD)
        if opcode == ABNF.OPCODE_CLOSE:
            self.close_code = int.from_bytes(content[:2], "big")
            raise WebSocketConnectionClosedException
        return bytes(content)

    def _play(self) -> None:
        room = CHUNK
        while self.unplayed and (room or isinstance(self.unplayed[0], str)):
            first = self.unplayed.popleft()
            if isinstance(first, str):
                self._return(first)
                continue
            self.heard += first[:room]
            if first[room:]:
                self.unplayed.appendleft(first[room:])
            room -= len(first[:room])

    def _return(self, name: str) -> None:
        self.returned.append(name)
        self._report("mark", mark={"name": name})


def talk_until(condition: Callable[[], object], *callers: Caller) -> None:
    """Let the calls go on until the condition is met: in real time, or as much slower as this process gets to run."""
    pause, began = threading.Event(), time.monotonic()
    due = began
    while not condition():
        assert time.monotonic() < began + GUARD, "the calls do not get there"
        for caller in callers:
            caller.tick()
        due = max(due + 0.02, time.monotonic())  # late ticks are not made up for: that would hurry the bridge
        pause.wait(due - time.monotonic())
