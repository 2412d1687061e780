"""Opens, closes, switches and mutes devices again and again, under load; prints in JSON which counts have grown.

    python -m tests.audio.cycles LIBRARY ROUNDS

A round switches both devices, mutes and unmutes; every fourth closes and opens a session. During all rounds two threads
compute, and bot and user speak.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from rtvi_sync import RTVIClient
from rtvi_sync.testing import EmbeddedBot
from tests.support.protobuf import AudioRawFrame
from tests.support.slowness import GUARD
from tests.support.waiting import until

from .pulse import RATE
from .sessions import Hearing, client_of, device, tone

_WARM_UP = 4


def busy(over: threading.Event) -> None:
    """Compute."""
    while not over.is_set():
        sum(range(1000))


def speak(bot: EmbeddedBot) -> None:
    """Have the bot say more than is ever heard."""
    session = bot.wait_for_session(GUARD)
    for _ in range(50):
        session.send_frame(AudioRawFrame(audio=tone(500, 0.04).tobytes(), sample_rate=RATE, num_channels=1))


def turn(client: RTVIClient, bot: EmbeddedBot, number: int) -> None:
    """Run one round, within a session."""
    letter = "ba"[number % 2]
    client.update_mic(device(f"mic_{letter}"))
    client.update_speaker(device(f"speaker_{letter}"))
    client.enable_mic(False)
    client.enable_mic(True)
    if number % 4 == 3:
        client.disconnect()
        client.connect()
        speak(bot)


def main(library: str, rounds: int) -> None:
    """Run all rounds."""
    over = threading.Event()
    for _ in range(2):
        threading.Thread(target=busy, args=[over], daemon=True).start()
    with EmbeddedBot() as bot, client_of(bot.ws_url, audio_backend=library) as client:
        speak(bot)
        before = {}
        for number in range(_WARM_UP + rounds):
            if number == _WARM_UP:
                before = measure(client)
            turn(client, bot, number)
        after = measure(client)
        track = client.tracks().local.audio
        assert track is not None
        Hearing(track).wait_loud(0.3)
    over.set()
    json.dump({name: after[name] - before[name] for name in before}, sys.stdout)


def measure(client: RTVIClient) -> dict[str, int]:
    """Count threads (including those in libraries), descriptors and memory, while no device is being opened or
    closed.
    """
    counts: dict[str, Callable[[], int]] = {
        "threads": lambda: len(os.listdir("/proc/self/task")),
        "descriptors": lambda: len(os.listdir("/proc/self/fd")),
    }
    client.send_client_request("ping")
    seen: list[dict[str, int]] = []

    def settled() -> bool:
        seen.append({name: count() for name, count in counts.items()})
        return len(seen) > 20 and all(each == seen[-1] for each in seen[-20:])

    until(settled, "threads and descriptors come and go")
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {**seen[-1], "kilobytes": pages * os.sysconf("SC_PAGE_SIZE") // 1024}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
