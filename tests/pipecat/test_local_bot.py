"""The bot of samples/local_bot understands spoken English, calls a function and answers in speech."""

from __future__ import annotations

import os
import subprocess
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from rtvi_sync import Event, EventStream, RTVIClient, RTVIEvent
from rtvi_sync.cli.scripted_speech import UtteranceSource, load_script
from rtvi_sync.media import BytesSink
from samples.local_bot import answers
from tests.support.required import missing
from tests.support.slowness import GUARD
from tools.local_bot import serve_local_bot

ROOT = Path(__file__).parents[2]
QUESTIONS = ("What is the weather like in Paris?", "Tell me a joke.", "Goodbye for now!")
HEARD = ["what is the weather like in paris", "tell me a joke", "goodbye for now"]
ANSWERS = ["In Paris it is sunny, with 21 degrees.", answers.JOKE, answers.GOODBYE]
EVENTS = (
    RTVIEvent.USER_TRANSCRIPT,
    RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS,
    RTVIEvent.LLM_FUNCTION_CALL_STOPPED,
    RTVIEvent.BOT_TTS_TEXT,
    RTVIEvent.BOT_STOPPED_SPEAKING,
)
SPOKEN = [
    "in paris it is sunny with twenty one degrees",
    "why did the robot go on holiday it was tired and low on power",
    "goodbye and have a nice day",
]

# Prints the words of each WAV file of the bot's voice, as PocketSphinx hears them.
LISTEN = """
import sys
import soundfile, soxr
from samples.local_bot.speech import RECOGNIZER_RATE_HZ, Recognizer
recognizer = Recognizer("#JSGF V1.0; grammar answers; public <answer> = " + sys.argv[1] + ";")
for path in sys.argv[2:]:
    samples, rate = soundfile.read(path, dtype="int16")
    print(recognizer.recognize(soxr.resample(samples, rate, RECOGNIZER_RATE_HZ).tobytes()))
"""


@attrs.frozen
class LocalBot:
    """The bot, and the Python of its environment."""

    url: str
    python: str

    def run(self, *arguments: object) -> str:
        """Run the environment's Python, and return what it prints."""
        words = [self.python, *map(str, arguments)]
        return subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=GUARD, check=True).stdout


@pytest.fixture(scope="module")
def local_bot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBot]:
    """Run the bot on a free port."""
    python = os.environ.get("RTVI_LOCAL_BOT")
    if not python:
        missing("The local bot is not installed (RTVI_LOCAL_BOT is not set): run `python3 run.py test --real`")
    with serve_local_bot(Path(python), tmp_path_factory.mktemp("local_bot") / "bot.log") as url:
        yield LocalBot(url, python)


def data_of(turn: list[Event], type_: RTVIEvent) -> list[Any]:
    """Return the data of a turn's events of one type."""
    return [event.data for event in turn if event.type is type_]


def take_answer(events: EventStream, words: str) -> list[Event]:
    """Return the events up to the end of a spoken answer, which contains `words`."""
    taken: list[Event] = []
    deadline = time.monotonic() + GUARD
    while time.monotonic() < deadline:
        taken.append(next(events))
        spoken = " ".join(said.text.strip() for said in data_of(taken, RTVIEvent.BOT_TTS_TEXT))
        if words in spoken and taken[-1].type is RTVIEvent.BOT_STOPPED_SPEAKING:
            return taken
    pytest.fail(f"the bot has not said {words!r}, but sent {taken}")


def test_three_spoken_questions_are_answered_in_speech(local_bot: LocalBot, tmp_path: Path) -> None:
    """Recognized words, a function call with arguments and result, and answers whose audio has the right words."""
    local_bot.run("-m", "samples.local_bot.questions", tmp_path / "questions.wav", *QUESTIONS)
    speech = load_script(tmp_path / "questions.wav")
    source, sink = UtteranceSource(speech.sample_rate_hz), BytesSink()
    client = RTVIClient.for_url(local_bot.url, mic=source, speaker=sink, connect_timeout=GUARD)
    turns: list[list[Event]] = []
    cuts: list[int] = []
    with client.events(*EVENTS, timeout=GUARD) as events, client:
        take_answer(events, answers.GREETING)
        for utterance, answer in zip(speech.utterances, ANSWERS, strict=True):
            cuts.append(len(sink.pcm))
            source.enqueue(utterance)
            turns.append(take_answer(events, answer))

    assert [[said.text for said in data_of(turn, RTVIEvent.USER_TRANSCRIPT) if said.final] for turn in turns] == [
        [heard] for heard in HEARD
    ]
    assert [
        (call.function_name, call.arguments) for call in data_of(turns[0], RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS)
    ] == [("get_weather", {"city": "Paris"})]
    assert [(call.cancelled, call.result) for call in data_of(turns[0], RTVIEvent.LLM_FUNCTION_CALL_STOPPED)] == [
        (False, answers.get_weather("Paris"))
    ]
    assert [data_of(turn, RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS) for turn in turns[1:]] == [[], []]

    files = []
    for number, (begin, end) in enumerate(zip(cuts, [*cuts[1:], None], strict=True)):
        files.append(tmp_path / f"answer-{number}.wav")
        with wave.open(str(files[-1]), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(sink.sample_rate_hz or 0)
            file.writeframes(sink.pcm[begin:end])
    assert local_bot.run("-c", LISTEN, " | ".join(SPOKEN), *files).splitlines() == SPOKEN
