"""The bot of samples/local_bot understands spoken English, calls a function and answers in speech."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import httpx
import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.media import NullSink, SilenceSource
from samples.local_bot import answers
from tests.support import part_probes
from tests.support.required import missing
from tests.support.slowness import GUARD
from tools.local_bot import serve_local_bot

from .clients import TransportName

ROOT = Path(__file__).parents[2]
QUESTIONS = ("What is the weather like in Paris?", "Tell me a joke.", "Goodbye for now!")
HEARD = ["what is the weather like in paris", "tell me a joke", "goodbye for now"]
ANSWERS = ["In Paris it is sunny, with 21 degrees.", answers.JOKE, answers.GOODBYE]
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
        """Run the environment's Python, and return its output."""
        words = [self.python, *map(str, arguments)]
        return subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=GUARD, check=True).stdout


@pytest.fixture(scope="module")
def environment() -> str:
    """Return the Python of the bot's environment."""
    python = os.environ.get("RTVI_LOCAL_BOT")
    if not python:
        missing("The local bot is not installed (RTVI_LOCAL_BOT is not set): run `python3 run.py test --real`")
    return python


@pytest.fixture(scope="module")
def local_bot(environment: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBot]:
    """Run the bot on a free port."""
    with serve_local_bot(Path(environment), tmp_path_factory.mktemp("local_bot") / "bot.log") as url:
        yield LocalBot(url, environment)


# A file that Python runs first; the modules that it names cannot be imported.
WITHOUT_WEBRTC = """
import sys
sys.modules.update(dict.fromkeys(("aioice", "aiortc", "av", "cv2", "pylibsrtp")))
"""


def test_three_spoken_questions_are_answered_in_speech(local_bot: LocalBot, tmp_path: Path) -> None:
    """Recognized words, a function call with arguments and result, and answers whose audio has the right words."""
    local_bot.run("-m", "samples.local_bot.questions", tmp_path / "questions.wav", *QUESTIONS)
    speech = part_probes.utterances_of(tmp_path / "questions.wav")
    client = RTVIClient.for_url(local_bot.url, mic=SilenceSource(), speaker=NullSink(), connect_timeout=GUARD)
    with client:
        greeting = client.listen(GUARD)
        turns = [client.ask(pcm, GUARD, sample_rate_hz=speech.sample_rate_hz) for pcm in speech.utterances]

    assert answers.GREETING in (greeting.bot_text or "")
    assert [turn.user_text for turn in turns] == HEARD
    assert [answer in (turn.bot_text or "") for turn, answer in zip(turns, ANSWERS, strict=True)] == [True] * 3
    calls = [
        [(call.function_name, call.arguments, call.cancelled, call.result) for call in turn.function_calls]
        for turn in turns
    ]
    assert calls == [[("get_weather", {"city": "Paris"}, False, answers.get_weather("Paris"))], [], []]

    files = [tmp_path / f"answer-{turn.number}.wav" for turn in turns]
    for turn, file in zip(turns, files, strict=True):
        turn.audio.save(file)
    assert local_bot.run("-c", LISTEN, " | ".join(SPOKEN), *files).splitlines() == SPOKEN


def commands_of_readme() -> list[list[str]]:
    """Return the commands for a running bot in the README of the sample."""
    lines = re.findall(r"^    (.*)$", (ROOT / "samples/local_bot/README.md").read_text("utf-8"), re.MULTILINE)
    return [shlex.split(line) for line in lines if "--url" in line or "local_bot.questions" in line]


def test_the_commands_of_its_readme(local_bot: LocalBot, tmp_path: Path) -> None:
    """The commands of the README, in their order, work with a running bot, for typed and spoken questions."""
    said = []
    for program, *words in commands_of_readme():
        its_own = program == ".cache/local-bot/bin/python"
        if not its_own:
            assert (program, *words[:2]) == ("python3", "run.py", "sample")
            words[:3] = ["-m", f"samples.{words[2]}"]
        words = [word.replace("http://localhost:7860", local_bot.url) for word in words]
        done = subprocess.run(
            [local_bot.python if its_own else sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=GUARD,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert re.search(r"What time is it\? -> .*It is \d\d:\d\d\.", said[0])
    assert re.search(r"you: what time is it\nbot: .*It is \d\d:\d\d\.\n", said[-1])


def greetings(url: str) -> list[str]:
    """Return the bot's first words to a protobuf client, and to a JSON client."""
    names: tuple[TransportName, ...] = "websocket", "eval"
    clients = [RTVIClient.for_url(url, transport=name, text_only=True, connect_timeout=GUARD) for name in names]
    said = []
    for client in clients:
        with client.events("bot-llm-text", timeout=GUARD) as events, client:
            said.append(next(events).data.text)
    return said


def start_for_webrtc(url: str) -> httpx.Response:
    """Request a session over WebRTC."""
    return httpx.post(f"{url}/start", json={"transport": "webrtc"}, timeout=GUARD, trust_env=False)


def test_the_ways_in(local_bot: LocalBot) -> None:
    """Each entry of `transport_params` lets its clients in; a session over WebRTC waits for their offer."""
    assert greetings(local_bot.url) == [answers.GREETING] * 2
    assert "sessionId" in start_for_webrtc(local_bot.url).json()


def test_the_sample_of_tests_passes(local_bot: LocalBot) -> None:
    """All tests of samples/bot_test pass against the live bot, none is skipped."""
    words = [sys.executable, "-m", "samples.bot_test", "-q", "-W", "error", "--rtvi-url", local_bot.url]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=GUARD)
    assert re.match(r"6 passed in", done.stdout.splitlines()[-1]), done.stdout + done.stderr


@pytest.mark.matrix
def test_without_the_packages_of_webrtc(environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bot starts, and lets all other clients in."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_WEBRTC)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serve_local_bot(Path(environment), tmp_path / "bot.log") as url:
        assert start_for_webrtc(url).status_code == 400
        assert greetings(url) == [answers.GREETING] * 2
