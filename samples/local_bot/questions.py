"""Speak questions into a WAV file, with the words in a text file beside it.

python -m samples.local_bot.questions QUESTIONS.wav ["What time is it?" ...]
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

from .speech import Voice

QUESTIONS = ("What time is it?", "What is the weather like in Paris?", "Tell me a joke.", "Goodbye for now!")
# A voice that PocketSphinx understands, and that differs from the bot's.
USER_VOICE = "en-us+f3"
_PAUSE = 1.0  # seconds


def write(path: Path, questions: tuple[str, ...] = QUESTIONS) -> None:
    """Write the questions, with pauses between them, at which they can be cut."""
    voice = Voice(USER_VOICE)
    pause = bytes(2 * int(voice.sample_rate_hz * _PAUSE))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(voice.sample_rate_hz)
        for question in questions:
            file.writeframes(voice.speak(question) + pause)
    path.with_suffix(".txt").write_text("\n".join(questions) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), tuple(sys.argv[2:]) or QUESTIONS)
