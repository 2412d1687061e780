"""Play a WAV file to a voice bot, print the transcript, keep the bot's audio.

    python3 run.py sample talk_from_wav --url ws://localhost:7860/ws-client QUESTION.wav ANSWER.wav

Without a URL it talks to the built-in bot, which echoes the audio; without files it plays the package's own speech.
"""

import argparse
import contextlib
import sys
from pathlib import Path

import rtvi_sync
from rtvi_sync import BotLLMTextData, RequestTimeoutError, RTVIClient, UserTranscriptionData
from rtvi_sync.cli import run_program
from rtvi_sync.media import WavSink, WavSource
from rtvi_sync.testing import EmbeddedBot


def print_user(said: UserTranscriptionData) -> None:
    """Print a final transcript of the user's speech."""
    if said.final:
        print("you:", said.text)


def print_bot(said: BotLLMTextData) -> None:
    """Print a sentence of the bot."""
    print("bot:", said.text.strip())


def talk(question: str, answer: str, url: str) -> None:
    """Play one WAV file, and record the answer to another."""
    speech = WavSource(question)
    client = RTVIClient.for_url(
        url,
        callbacks={"on_user_transcript": print_user, "on_bot_transcript": print_bot},
        mic=speech,
        speaker=WavSink(answer),
        connect_timeout=15,
    )
    with client:
        speech.wait()  # it is sent in real time, and followed by silence, after which the bot answers
        with contextlib.suppress(RequestTimeoutError):  # the answer may be so short that it is over already
            client.wait_for("bot-stopped-speaking", timeout=20)
    # The session is over, so the file is complete.
    print("The bot's voice is in", answer)


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("question", nargs="?", default=str(Path(rtvi_sync.__file__).with_name("cli") / "speech.wav"))
    parser.add_argument("answer", nargs="?", default="answer.wav")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        talk(given.question, given.answer, given.url or stack.enter_context(EmbeddedBot()).ws_url)


if __name__ == "__main__":
    sys.exit(run_program(main))
