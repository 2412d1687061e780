"""Stretches of work between marks: `python -m tests.behaviour.footprint.stretches WS_URL TIMES`, TIMES as much of each.

callgrind counts instructions and strace system calls, between the marks. A mark is a call that nothing else makes; one
precedes each stretch and one follows it. Prints a list with `[name, number]` of each stretch, in order, as
JSON. The server is the one of the benchmarks. JSON and masks are made without orjson and without the extension module
of websockets, whether or not they are installed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from benchmarks.peers import find

OURS: Final = find("ours-default")  # before anything else of the package: it hides the faster libraries
REF: Final = find("ref")

from benchmarks import parts  # noqa: E402
from benchmarks.peers.base import FRAME, Peer  # noqa: E402
from benchmarks.scenarios.session import Counting  # noqa: E402
from benchmarks.server import Command  # noqa: E402
from benchmarks.server_frames import SAMPLE_RATE_HZ  # noqa: E402
from rtvi_sync.protocol import audio_frames, frames, wire  # noqa: E402

_LOT: Final = 40  # audio frames: a client may keep no more than a second of it

#: Name of the work, how often it runs, and the function that runs it so often.
Stretch = tuple[str, int, Callable[[int], object]]


def repeated(call: Callable[[], object]) -> Callable[[int], None]:
    """Call it so often."""

    def repeat(number: int) -> None:
        for _ in range(number):
            call()

    return repeat


def in_rows(row: Callable[[], object], number: int) -> None:
    """Do it so often with a call for each row."""
    repeated(row)(number // parts.IN_A_ROW)


def of_parts() -> Iterator[Stretch]:
    """Yield the parts of the way in and out, each alone, and their references."""
    message = frames.encode(frames.MessageFrame(data=parts.TEXT))
    text = parts.TEXT.encode()
    audio = frames.encode(frames.AudioRawFrame(audio=FRAME, sample_rate=SAMPLE_RATE_HZ))
    usual = audio_frames.AudioFrameTemplate()
    usual.update(audio, FRAME, SAMPLE_RATE_HZ, 1)
    calls: dict[str, Callable[[], object]] = {
        "json.loads": lambda: json.loads(parts.TEXT),
        "codec, a message in": lambda: wire.match_message_frame(message),
        "codec, a message out": lambda: wire.encode_message(text),
        "codec, audio in": lambda: usual.match(audio),
        "codec, audio out": lambda: audio_frames.encode_audio(FRAME, SAMPLE_RATE_HZ),
    }
    for name, call in calls.items():
        yield name, 500, repeated(call)
    for name, part in parts.parts().items():
        if not name.startswith("codec"):  # those are the forms for programs that look at frames
            yield name, 5 * parts.IN_A_ROW, partial(in_rows, part)


def of_session(name: str, peer: type[Peer], url: str) -> Iterator[Stretch]:
    """Yield the whole way in, from the socket to the handler or the sink, and the whole way out."""
    counting = Counting()
    client = peer(url, counting, hearing=True)

    def burst(command: str, events: int | None, number: int) -> None:
        counting.expect(events or number)
        client.request(command, {"n": number})
        counting.wait()

    def talk(number: int) -> None:
        for _ in range(number // _LOT):
            client.send_frames(_LOT)
            client.request(Command.ECHO)

    client.connect()
    yield f"{name}, an event", 1000, partial(burst, Command.EVENTS, None)
    yield f"{name}, audio down", 1000, partial(burst, Command.AUDIO, 1)
    yield f"{name}, audio up", 10 * _LOT, talk
    yield f"{name}, a request", 300, repeated(lambda: client.request(Command.ECHO))
    client.close()


def main(url: str, times: int) -> None:
    """Do it all."""
    # Under observation all is slow, and threads would switch back and forth for that reason alone.
    sys.setswitchinterval(1.0)
    done = []
    for stretches in (of_parts(), of_session("ours", OURS, url), of_session("ref", REF, url)):
        for name, number, work in stretches:
            work(number)
            gc.collect()
            gc.freeze()  # objects that exist now are not visited again
            os.getppid()
            work(number * times)
            os.getppid()
            done.append((name, number * times))
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
