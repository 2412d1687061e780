"""Strikes calls of the main thread at many instants while the bot talks, and checks that other threads go on.

Run by `test_strikes.py`: ``main(CALL, COUNT)`` prints the number of strikes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from rtvi_sync import RequestTimeoutError, RTVIClient, TransportState
from tests.behaviour.life.blocking import tell
from tests.support.clients import say
from tests.support.scripted_talk import TalkingBot
from tests.support.slowness import GUARD
from tests.support.strikes import Strikes
from tests.support.waiting import until

#: Strikes between two checks.
_ROUND: Final = 100


def listen(client: RTVIClient) -> None:
    with contextlib.suppress(RequestTimeoutError):
        client.listen(0.0005)


def frames(client: RTVIClient) -> None:
    track = client.tracks().bot.audio
    assert track is not None
    track.frames().close()


#: The calls that are struck.
CALLS: Final[dict[str, Callable[[RTVIClient], Any]]] = {
    "turns": lambda client: client.turns(),
    "stats": lambda client: client.stats(),
    "ask": lambda client: client.ask("Are you there?", GUARD),
    "listen": listen,
    "tracks": lambda client: client.tracks(),
    "frames": frames,
}


def main(name: str, count: int) -> None:
    """Strike a call `count` times."""
    faulthandler.dump_traceback_later(4 * GUARD, exit=True)
    logging.disable(logging.CRITICAL)
    sys.setswitchinterval(1e-5)  # threads get in each other's way more often
    sys.unraisablehook = lambda _: None
    call, talks = CALLS[name], True
    heard: list[Any] = []
    with Strikes() as strikes, TalkingBot(audio=True).client() as client:
        client.on("server_message", heard.append)
        client.ask("Hello", GUARD)

        def talk() -> None:
            while talks:
                say(client, "meanwhile")
                threading.Event().wait(0.002)

        talker = threading.Thread(target=talk, daemon=True)
        talker.start()
        for struck in range(1, count + 1):
            strikes.strike(lambda: call(client))
            if struck % _ROUND == 0:
                _check(client, heard)
        talks = False
        talker.join(GUARD)
        assert client.state is TransportState.READY
    tell(f"{count} strikes")


def _check(client: RTVIClient, heard: list[Any]) -> None:
    """Check that another thread can ask and count, and that events arrive."""
    answers: list[str | None] = []

    def use() -> None:
        answers.append(client.ask("Still there?", GUARD).bot_text)
        client.turns()
        client.stats()
        client.tracks()
        answers.append("done")

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(GUARD)
    assert answers == ["You said Still there?", "done"], answers
    before = len(heard)
    until(lambda: len(heard) > before)
