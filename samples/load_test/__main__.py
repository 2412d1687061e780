"""A load test of a bot with Locust: a master and two workers, whose users type and speak.

    python3 run.py sample load_test --url http://localhost:7860 --users 20 --run-time 30s

Without a URL the embedded bot is tested, which runs in this process. All that `locust` understands is passed on.
"""

import argparse
import contextlib
import subprocess
import sys
from pathlib import Path

from rtvi_sync import RTVIClient
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot

HOW_MUCH = ["--users", "10", "--spawn-rate", "5", "--run-time", "20s"]


def main() -> int:
    """Read the command line, run Locust, and return its exit status."""
    parser = argparse.ArgumentParser(prog="run.py sample load_test", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("--workers", type=int, default=2, help="processes: as many as the machine has cores, say")
    given, more = parser.parse_known_args()
    if given.url:
        RTVIClient.for_url(given.url)  # refuses a wrong URL here, and not in each user
    with contextlib.ExitStack() as stack:
        url = given.url or stack.enter_context(EmbeddedBot()).ws_url
        locustfile = Path(__file__).with_name("locustfile.py")
        # A later option wins, so the user's own are last.
        command = ["-f", str(locustfile), "--headless", "--only-summary", "--processes", str(given.workers)]
        locust = subprocess.Popen([sys.executable, "-m", "locust", *command, "--host", url, *HOW_MUCH, *more])
        try:
            return locust.wait()
        except KeyboardInterrupt:  # Locust gets it too, and prints its results
            return locust.wait()


if __name__ == "__main__":
    sys.exit(run_program(main))
