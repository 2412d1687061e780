"""`python -m tools.soak`: rounds of sessions, a measurement after each, and a verdict at the end."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import platform
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from rtvi_sync.media.resample import resampler_of
from tools.machine import CACHE

from .bots import Bots
from .ledger import GRACE, Ledger
from .measure import Recorder, judge, read
from .users import User

_LIVE_INTERVAL: Final = 1.0
# Seconds from the end of a round: the longest session in progress, and its end.
_LAST_SESSION: Final = 60.0
_STRAGGLERS: Final = 10.0


class Soak:
    """Rounds of users, each followed by a measurement without sessions.

    Args:
        arguments: the command line's.
        folder: where audio is written.
    """

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self._recorder = Recorder(arguments.output / "soak.csv")
        self._bots = Bots()
        self._round = 0
        self.ledger = Ledger()
        self.faults: Counter[str] = Counter()

    def run(self) -> None:
        """Run rounds until the time is up, or users hang."""
        # A fault may change the rate of a recording, which loads a library for good: load it before any measurement.
        resampler_of(16_000, 24_000)
        self.ledger.watch()
        try:
            while self._goes_on() and self._play_round():
                self._round += 1
        except KeyboardInterrupt:
            print("stopped early", flush=True)
        finally:
            self._bots.close()
            self._recorder.close()

    def _goes_on(self) -> bool:
        arguments = self._arguments
        enough: bool = self.ledger.sessions >= arguments.sessions
        return self._recorder.seconds < 60 * arguments.minutes or not enough

    def _play_round(self) -> bool:
        seed = f"{self._arguments.seed}-{self._round}"
        addresses = self._bots.begin(seed)
        until = time.monotonic() + self._arguments.round_seconds
        users = [
            threading.Thread(
                target=User(random.Random(f"{seed}-{number}"), addresses, self.ledger, self._folder, until).live,
                name=f"soak-user-{number}",
                daemon=True,
            )
            for number in range(self._arguments.users)
        ]
        for user in users:
            user.start()
        while (now := time.monotonic()) < until + _LAST_SESSION and any(user.is_alive() for user in users):
            next(user for user in [*users, users[-1]] if user.is_alive() or user is users[-1]).join(_LIVE_INTERVAL)
            if now < until:
                self._sample("live")
        hung = [user.name for user in users if user.is_alive()]
        self.faults += self._bots.end()
        if hung:
            self.ledger.blame(f"hung: {', '.join(hung)}")
            faulthandler.dump_traceback()
            return False
        self._wait_for_quiet()
        self._sample("quiet")
        return True

    def _wait_for_quiet(self) -> None:
        """Collect dropped clients, and wait for the threads that end their sessions."""
        gc.collect()
        limit = time.monotonic() + _STRAGGLERS + GRACE
        while late := [thread for thread in threading.enumerate() if thread.name.startswith("rtvi-")]:
            if time.monotonic() > limit:
                self.ledger.blame(f"left behind: {', '.join(thread.name for thread in late)}")
                return
            late[0].join(0.1)
            gc.collect()
        gc.collect()

    def _sample(self, moment: str) -> None:
        ledger = self.ledger
        calls = ledger.calls.total()
        self._recorder.sample(
            "quiet" if moment == "quiet" else "live", self._round, ledger.sessions, calls, self.faults.total()
        )


def main() -> int:
    """Run the soak. Return 1 if a resource has grown or anything was wrong."""
    arguments = parse(sys.argv[1:])
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rtvi-soak-") as folder:
        soak = Soak(arguments, Path(folder))
        soak.run()
    samples = read(arguments.output / "soak.csv")
    verdicts = judge(samples)
    good = all(verdict.good for verdict in verdicts) and not soak.ledger.wrong
    summary = "\n".join([*tell(arguments, soak), *(f"{'ok  ' if v.good else 'BAD '} {v.text}" for v in verdicts)])
    summary += f"\n{'all is well' if good else 'FAILED'}\n"
    print(summary, end="", flush=True)
    (arguments.output / "soak.txt").write_text(summary, encoding="utf-8")

    from .plot import draw  # imported late, because matplotlib must not be measured

    draw(samples, arguments.output / "soak.svg")
    return 0 if good else 1


def parse(words: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="run.py soak", description="Open and close sessions; nothing may grow.")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long (default: %(default)g)")
    parser.add_argument("--sessions", type=int, default=0, help="the least number of sessions")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of all random choices"
    )
    parser.add_argument("--output", type=Path, default=CACHE / "soak", help="folder for soak.csv, .svg and .txt")
    parser.add_argument("--users", type=int, default=6, help="clients at once (default: %(default)d)")
    parser.add_argument("--round-seconds", type=float, default=20.0, help="duration of a round (default: %(default)g)")
    return parser.parse_args(words)


def tell(arguments: argparse.Namespace, soak: Soak) -> list[str]:
    """Return the lines of the summary without verdicts."""
    ledger = soak.ledger
    lines = [
        f"soak of {arguments.minutes:g} minutes, seed {arguments.seed}, {arguments.users} users, "
        f"Python {platform.python_version()}",
        f"{ledger.sessions} sessions, {ledger.calls.total()} calls, {ledger.reconnects} reconnects, "
        f"{ledger.dropped} clients dropped while connected",
        f"{soak.faults.total()} faults: " + ", ".join(f"{n} {kind}" for kind, n in soak.faults.most_common()),
    ]
    for name, number in ledger.calls.most_common():
        errors = [f"{n} {error}" for (call, error), n in ledger.errors.most_common() if call == name]
        over = ledger.longest[name]
        bound = f"the longest {abs(over):.2f} s {'over' if over > 0 else 'below'} its limit"
        lines.append(f"  {name}: {number}, {bound}" + (f"; {', '.join(errors)}" if errors else ""))
    lines += [f"  logged {n} times: {level} {text!r}" for (level, text), n in ledger.logged.most_common()]
    return [*lines, *(f"WRONG {what}" for what in ledger.wrong)]


if __name__ == "__main__":
    sys.exit(main())
