"""The samples do their jobs, each as a program of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
import wave
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rtvi_sync.testing import EmbeddedBot, Reply
from samples.line_transport.__main__ import Bot
from samples.local_bot import answers as local_bot
from tests.support.real_video import opencv, write_film
from tests.support.samples import failure, run
from tests.support.slowness import GUARD
from tests.support.warm import WARM_PYTEST
from tests.support.wavs import silence, tone, write_wav
from tests.support.webrtc import FarLoop, Film, ready_answers, rtc_bot

ROOT = Path(__file__).parents[1]
REFUSED = "ws://127.0.0.1:1"
# Samples that talk to a bot at once, the options with which they fail soon, and a URL where no bot is.
TALKERS: dict[str, tuple[str, ...]] = {
    "ask_text": ("--url", REFUSED),
    "manual_events": ("--url", REFUSED),
    "ask_wav": ("--url", REFUSED),
    "barge_in": ("--url", REFUSED),
    "voice_helper": ("--url", REFUSED),
    "line_transport": ("--url", "tcp://127.0.0.1:1"),
    "video_transport": ("--url", "tcp://127.0.0.1:1"),
    "video_call": ("--url", "http://127.0.0.1:1", "--silent", "--folder", "pictures"),
}
OTHERS = ("celery_task", "django_app", "flask_app", "kiosk", "load_test", "notebook", "phone_bridge")
# The packages that each needs beyond the package itself.
NEEDED = {
    "celery_task": "celery",
    "django_app": "django",
    "flask_app": "flask",
    "notebook": "nbformat",
}
SAMPLES = sorted(ROOT.joinpath("samples").glob("*.py"))


@pytest.mark.parametrize("name", TALKERS)
def test_a_bot_that_is_not_there_is_one_line(name: str, tmp_path: Path) -> None:
    """A sample that reaches no bot ends without a traceback, and with the address that was tried."""
    if name == "video_call":
        opencv()
    assert "refused" in failure(tmp_path, name, *TALKERS[name]).lower()


@pytest.mark.parametrize("name", [*TALKERS, *OTHERS])
def test_a_wrong_url_is_one_line(name: str, tmp_path: Path) -> None:
    """A URL of another kind is refused before anything is started, and the line shows the form of a URL."""
    line = failure(tmp_path, name, "--url", "ftp://127.0.0.1/x")
    assert re.search(r"start with ws://|URL such as tcp://", line)


@pytest.mark.parametrize("name", NEEDED)
def test_a_package_that_is_missing_is_one_line(name: str, tmp_path: Path) -> None:
    """A sample whose package is missing ends with a line that names the package."""
    hidden = f"import sys; sys.modules[{NEEDED[name]!r}] = None"
    assert NEEDED[name] in failure(tmp_path, name, *(["--execute"] if name == "notebook" else []), first=hidden)


def test_the_task_returns_the_answer_and_not_the_greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task returns the answer, without the greeting and without the model's text before it calls a function."""
    tasks = pytest.importorskip("samples.celery_task.tasks", exc_type=ImportError)
    answer = Reply("It is noon.", call="clock", result={"hour": 12}, filler="One moment.")
    with EmbeddedBot(greeting="Hello, ask me.", replies=[answer]) as bot:
        monkeypatch.setenv("RTVI_URL", bot.ws_url)
        assert tasks.ask("What time is it?").endswith("It is noon.")


def test_a_task_is_repeated_if_that_may_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """An absent server may return, whatever class the error has; one that refuses will refuse again."""
    tasks = pytest.importorskip("samples.celery_task.tasks", exc_type=ImportError)
    for_url = Mock(wraps=tasks.RTVIClient.for_url)
    monkeypatch.setattr(tasks, "RTVIClient", Mock(for_url=for_url))
    with EmbeddedBot(headers={"Authorization": "Bearer secret"}) as refusing:
        for url, attempts in ((REFUSED, 4), ("http://127.0.0.1:1", 4), (refusing.base_url, 1)):
            monkeypatch.setenv("RTVI_URL", url)
            for_url.reset_mock()
            assert tasks.ask.apply(("Hello",)).failed()  # in this process, and repeated at once
            assert for_url.call_count == attempts, url


def test_a_bot_that_the_task_does_not_reach_is_one_line(tmp_path: Path) -> None:
    """The worker's failure returns to the sample that asked, which says why. (Celery warns a worker of root's.)"""
    done = subprocess.run(
        [sys.executable, "-m", "samples.celery_task", "--url", REFUSED, "Hello"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert re.fullmatch(r"The task failed: .*127\.0\.0\.1:1 cannot be reached.*\n  See: .* unreachable\n", done.stderr)


@pytest.mark.parametrize(
    ("broker", "reason"),
    [("amqp://u:secret@127.0.0.1:1", "refused"), ("nothing://127.0.0.1", "nothing"), ("redis://127.0.0.1:1", "")],
)
def test_a_broker_that_cannot_be_used_is_one_line(broker: str, reason: str, tmp_path: Path) -> None:
    """A broker that does not answer, is of no known kind, or lacks its package is one line."""
    pytest.importorskip("celery")
    line = failure(tmp_path, "celery_task", "--broker", broker, "Hello")
    assert re.fullmatch(rf"Celery's broker cannot be used: .*{reason}.*celery\[redis\]\n", line)
    assert "secret" not in line


@pytest.mark.skipif(sys.platform == "win32", reason="a program cannot press Ctrl-C for another one there")
@pytest.mark.parametrize("name", ["ask_text", "manual_events", "ask_wav", "voice_helper"])
def test_ctrl_c_ends_a_sample_quietly(name: str, tmp_path: Path) -> None:
    """Status 130 and no traceback, here while the bot is waited for."""
    with (
        EmbeddedBot(ready=False) as bot,
        subprocess.Popen(
            [sys.executable, "-m", f"samples.{name}", "--url", bot.ws_url],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        bot.wait_for_session(GUARD)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=GUARD) == ("", "")
    assert process.returncode == 130


@pytest.mark.parametrize("path", SAMPLES, ids=[path.name for path in SAMPLES])
def test_a_sample_is_short_and_says_how_to_run_it(path: Path) -> None:
    """A sample has fewer than 70 lines; the first give its purpose and how to run it."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 70
    assert f"python3 run.py sample {path.stem} --url http://" in text.partition('"""\n\nimport')[0]


def test_line_transport(tmp_path: Path) -> None:
    """The sample of a transport is a package: its entry says how to run it, and talks to a bot of its own."""
    entry = ROOT / "samples" / "line_transport" / "__main__.py"
    assert "python3 run.py sample line_transport --url tcp://" in entry.read_text(encoding="utf-8")
    assert run(tmp_path, "line_transport", "Who?", "Where?") == [
        "Who? -> You said: Who?",
        "Where? -> You said: Where?",
    ]


def test_line_transport_with_a_bot_elsewhere(tmp_path: Path) -> None:
    """`--url` is the address of a bot that speaks in lines."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Bot) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        url = f"tcp://127.0.0.1:{server.server_address[1]}"
        lines = run(tmp_path, "line_transport", "--url", url, "When?")
        server.shutdown()
        serving.join()
    assert lines == ["When? -> You said: When?"]


def test_video_transport(tmp_path: Path) -> None:
    """The bot gets the pictures of a film, and keeps the last."""
    cv2 = opencv()
    entry = ROOT / "samples" / "video_transport" / "__main__.py"
    assert "python3 run.py sample video_transport --url tcp://" in entry.read_text(encoding="utf-8")
    write_film(tmp_path / "film.avi", 5, size=(64, 48))
    assert run(tmp_path, "video_transport", "film.avi") == ["I saw 5 pictures of 64 x 48. The last is in seen.jpg."]
    assert cv2.imread(str(tmp_path / "seen.jpg")).shape == (48, 64, 3)


def test_video_call(tmp_path: Path) -> None:
    """The bot, which shows nothing before, sees bars of colour, and its pictures go to a folder."""
    cv2 = opencv()
    with closing(FarLoop()) as loop, rtc_bot(loop, ready_answers) as bot:

        class Shy(Film):
            async def recv(self) -> Any:
                while not bot.calls[-1].frames[1]:
                    await asyncio.sleep(0.01)
                return await super().recv()

        bot.tracks = lambda: [None, Shy(200)]
        url = ("--url", f"{bot.url}/api/offer")
        lines = run(tmp_path, "video_call", *url, "--silent", "--most", "3", "--folder", "shown")
        assert {(frame.width, frame.height) for frame in bot.calls[0].frames[1]} == {(320, 240)}
    assert lines == ["The bot's 3 pictures are in shown."]
    pictures = [cv2.imread(str(path)) for path in sorted((tmp_path / "shown").iterdir())]
    assert [picture.shape for picture in pictures] == [(120, 160, 3)] * 3
    assert abs(int(pictures[0][60, 80, 0]) - 200) < 12


def test_ask_wav(tmp_path: Path) -> None:
    """The transcript of both, and a file with the bot's voice: the embedded bot answers with the words it heard."""
    write_wav(tmp_path / "question.wav", [silence(0.2), tone(0.4), silence(0.1)])
    lines = run(tmp_path, "ask_wav", "question.wav", "answer.wav")
    assert [line.partition(":")[0] for line in lines] == ["you", "bot", "The bot's voice is in answer.wav"]
    with wave.open(str(tmp_path / "answer.wav")) as file:
        assert file.getframerate() == 16_000
        assert 0.4 < file.getnframes() / 16_000 < 0.8
        assert tone(0.3)[:1000] in file.readframes(16_000)


def test_ask_wav_with_a_bot_elsewhere(tmp_path: Path) -> None:
    """`--url` is the WebSocket of a bot."""
    write_wav(tmp_path / "question.wav", [silence(0.2), tone(0.4), silence(0.1)])
    with EmbeddedBot(transcripts="Who is there?", replies="It is me.") as bot:
        lines = run(tmp_path, "ask_wav", "--url", bot.ws_url, "question.wav", "answer.wav")
    assert lines[:2] == ["you: Who is there?", "bot: It is me."]


def test_barge_in(tmp_path: Path) -> None:
    """The turns have the words spoken before the interruption, and the answer to it."""
    first, second = run(tmp_path, "barge_in")
    assert re.fullmatch(r"interrupted: 'You said:.*' of \d+ characters was spoken", first)
    assert second == "then: You said: Stop!"


def test_bot_test(tmp_path: Path) -> None:
    """All tests pass but the one that needs a live bot, also without plugins that only this project needs."""
    *_, end = run(tmp_path, "bot_test", "-q", "-W", "error", *WARM_PYTEST, "-p", "no:timeout")
    assert re.match(r"5 passed, 1 skipped in", end)


def test_bot_test_with_a_bot_elsewhere(tmp_path: Path) -> None:
    """`--url` means the same in all samples."""
    with EmbeddedBot(replies=lambda said: local_bot.answer_to([{"role": "user", "content": said}])) as bot:
        options = ("-q", "-W", "error", *WARM_PYTEST, "--url", bot.base_url, "-k", "not test_the_weather")
        *_, end = run(tmp_path, "bot_test", *options)
        bot.wait_for_session()
    assert re.match(r"5 passed, 1 deselected in", end)


def test_phone_test(tmp_path: Path) -> None:
    """The embedded bot is called as by Twilio."""
    calls = 4 * GUARD  # each test talks in real time
    *_, end = run(tmp_path, "phone_test", "-q", "-W", "error", *WARM_PYTEST, "-p", "no:timeout", timeout=calls)
    assert re.match(r"4 passed in", end)


def test_ask_text(tmp_path: Path) -> None:
    """An answer to each question."""
    assert run(tmp_path, "ask_text") == [
        "What time is it? -> You said: What time is it?",
        "And in Oslo? -> You said: And in Oslo?",
    ]


def test_ask_text_with_a_bot_elsewhere(tmp_path: Path) -> None:
    """The bot at `--url` answers the questions of the command line."""
    with EmbeddedBot(replies=["Noon."]) as bot:
        assert run(tmp_path, "ask_text", "--url", bot.ws_url, "When?") == ["When? -> Noon."]


def test_voice_helper(tmp_path: Path) -> None:
    """The helper reads and changes the voice, has the bot speak, and reports the spoken words."""
    assert run(tmp_path, "voice_helper") == ["the voice was bass", "spoken: Good evening."]


def test_voice_helper_with_a_bot_elsewhere(tmp_path: Path) -> None:
    """The helper changes the voice of the bot at `--url`."""
    config = [{"service": "tts", "options": [{"name": "voice", "value": "tenor"}]}]
    with EmbeddedBot(version="0.3.0", config=config) as bot:
        lines = run(tmp_path, "voice_helper", "--url", bot.ws_url)
        voice = bot.wait_for_session().config[0]["options"][0]["value"]
    assert (lines[0], voice) == ("the voice was tenor", "alto")


def test_manual_events(tmp_path: Path) -> None:
    """Handlers run in the program's loop, which does other work until the bot has spoken."""
    *said, end = run(tmp_path, "manual_events")
    assert [line.partition(": ")[2] for line in said] == [
        "the bot said 'Once there was a thread.'",
        "the bot said 'It ended.'",
    ]
    sentences, _, _, rounds, _ = end.split()
    assert int(sentences) == 2
    assert int(rounds) > 10


def test_the_local_bots_answers() -> None:
    """Questions are answered; one that needs a function is a call first, then a sentence with its result."""

    def answer(*messages: tuple[str, str]) -> object:
        return local_bot.answer_to([{"role": role, "content": content} for role, content in messages])

    assert answer() == local_bot.GREETING
    assert answer(("user", "what is the weather like in new york today")) == ("get_weather", {"city": "New York"})
    assert answer(("user", "What time is it?")) == ("get_time", {})
    assert answer(("user", "Tell me a joke!")) == local_bot.JOKE
    assert answer(("user", "What is the weather in Atlantis?")) == local_bot.CONFUSED
    weather = json.dumps(local_bot.get_weather("Paris"))
    assert answer(("user", "the weather in Paris"), ("tool", weather)) == "In Paris it is sunny, with 21 degrees."
    assert answer(("user", "time"), ("tool", '{"time": "09:41"}')) == "It is 09:41."


def test_the_local_bot_is_pinned_like_the_real_bots() -> None:
    """Everything that its Pipecat needs has the same version in both environments."""
    pins, bot, webrtc = (
        set((ROOT / path).read_text().splitlines())
        for path in (
            "tests/pipecat/requirements-1.14.0.txt",
            "samples/local_bot/requirements.txt",
            "samples/local_bot/requirements-webrtc.txt",
        )
    )
    assert {line for line in pins if not line.startswith("#")} < bot | webrtc
