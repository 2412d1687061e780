"""Ask a voice bot the question in a WAV file, print the transcript, keep the bot's audio.

    python3 run.py sample ask_wav --url http://localhost:7860 QUESTION.wav ANSWER.wav

Without a URL it asks the embedded bot, which echoes the audio; without files it asks with the package's own speech.
"""

import argparse
import contextlib
import sys
from pathlib import Path

import rtvi_sync
from rtvi_sync import connect
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot


def ask(question: Path, answer: Path, url: str) -> None:
    """Say one WAV file, and write the answer to another."""
    with connect(url, mic=False, speaker=False, connect_timeout=15) as client:
        turn = client.ask(question)
    print("you:", turn.user_text)
    print("bot:", turn.bot_text)
    turn.audio.save(answer)
    print("The bot's voice is in", answer)


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    speech = Path(rtvi_sync.__file__).with_name("cli") / "speech.wav"
    parser.add_argument("question", nargs="?", type=Path, default=speech)
    parser.add_argument("answer", nargs="?", type=Path, default=Path("answer.wav"))
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        ask(given.question, given.answer, given.url or stack.enter_context(EmbeddedBot()).ws_url)


if __name__ == "__main__":
    sys.exit(run_program(main))
