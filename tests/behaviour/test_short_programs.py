"""Programs that applications start from are short: each runs unchanged, except for the address of its bot."""

from __future__ import annotations

import math
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.processes import free_port, python, rest_of
from tests.support.slowness import GUARD
from tests.support.waiting import until
from tests.support.wavs import tone, write_wav
from tests.support.wire import AudioRawFrame

URL = "http://localhost:7860"

FUNCTION_CALL = """
from rtvi_sync import connect

with connect("http://localhost:7860", text_only=True) as client:
    client.register_function_call_handler("get_weather", lambda call: {"city": call.arguments["city"], "celsius": 21})
    answers = client.events("bot-transcription", timeout=30)
    client.send_text("How warm is it in Oslo?")
    print(next(answers).data.text)
"""

ASK = """
from rtvi_sync import connect

with connect("http://localhost:7860", text_only=True) as client:
    print(client.ask("How warm is it in Oslo?").bot_text)
"""

ASK_BY_VOICE = """
from pathlib import Path
from rtvi_sync import connect

with connect("http://localhost:7860", mic=False, speaker=False) as client:
    turn = client.ask(Path("question.wav"))
print(turn.user_text, "->", turn.bot_text)
turn.audio.save("answer.wav")
"""

BARGE_IN = """
from rtvi_sync import connect

with connect("http://localhost:7860", text_only=True) as client:
    second = client.barge_in("Stop!", after="bot-started-speaking", delay=0.3)
    first = client.ask("Tell me a long story")
    print(first.status, first.spoken_text, sep=": ")
    print(second.result().status, second.result().bot_text, sep=": ")
"""

LIVE_TALK = """
from pathlib import Path
from rtvi_sync import connect

with connect("http://localhost:7860", mic=Path("question.wav"), speaker=Path("answer.wav")) as client:
    client.wait()
"""

KIOSK = """
from rtvi_sync import ReconnectPolicy, connect

show = {"on_bot_ready": print, "on_bot_transcription": lambda said: print("bot:", said.text)}
with connect("http://localhost:7860", callbacks=show, reconnect=ReconnectPolicy.forever(max_delay=1)) as client:
    client.wait()
"""


@pytest.mark.parametrize(
    ("program", "most"),
    [(ASK, 4), (ASK_BY_VOICE, 6), (BARGE_IN, 14), (FUNCTION_CALL, 6), (LIVE_TALK, 4), (KIOSK, 5)],
)
def test_lines(program: str, most: int) -> None:
    """A line has one statement and fits the project's limit."""
    lines = [line for line in program.splitlines() if line]
    assert len(lines) <= most
    assert not any(";" in line or len(line) > 120 for line in lines)


def running(program: str, base_url: str, folder: Path) -> subprocess.Popen[str]:
    """Start the program in a folder; use it as a context manager."""
    return python(program.replace(URL, base_url), executable=sys.executable, folder=folder)


def transcription(text: str) -> dict[str, object]:
    """Return the message that reports the bot's words."""
    return {"label": "rtvi-ai", "type": "bot-transcription", "data": {"text": text}}


def answer_by_function(session: BotSession) -> None:
    """Answer the user's question, as a bot does whose model calls a function of the client."""
    session.wait_for_message("send-text", GUARD)
    weather = session.call_function("get_weather", {"city": "Oslo"}, GUARD)
    session.send(transcription(f"It is {weather['celsius']} degrees in {weather['city']}."))


def test_ask(tmp_path: Path) -> None:
    """The program prints the whole answer."""
    with EmbeddedBot(replies="It is 21 degrees.") as bot, running(ASK, bot.base_url, tmp_path) as process:
        assert rest_of(process) == ("It is 21 degrees.\n", "")
    assert process.returncode == 0


def test_ask_by_voice(tmp_path: Path) -> None:
    """The program prints both sides, and the file has the bot's voice."""
    write_wav(tmp_path / "question.wav", [tone(0.5)])
    bot = EmbeddedBot(transcripts=["How warm is it?"], replies="Very warm.", echo=False)
    with bot, running(ASK_BY_VOICE, bot.base_url, tmp_path) as process:
        assert rest_of(process) == ("How warm is it? -> Very warm.\n", "")
    assert process.returncode == 0
    with wave.open(str(tmp_path / "answer.wav")) as file:
        assert file.getnframes() > 0.1 * file.getframerate()


def test_barge_in(tmp_path: Path) -> None:
    """The program prints the words spoken before the interruption, and the answer to it."""
    story = "Once upon a time there was a dog that ran over all the hills of the land" + 100 * ", day after day" + "."
    bot = EmbeddedBot(replies={"story": story, "Stop": "Well."})
    with bot, running(BARGE_IN, bot.base_url, tmp_path) as process:
        output, errors = rest_of(process)
    assert (process.returncode, errors) == (0, "")
    first, second = output.splitlines()
    status, _, spoken = first.partition(": ")
    assert (status, second) == ("interrupted", "complete: Well.")
    assert story.startswith(spoken)
    assert 0 < len(spoken) < len(story)


def test_function_call(tmp_path: Path) -> None:
    """The answer contains the function's result."""
    bot = EmbeddedBot(handler=lambda session, message: message["type"] == "send-text")
    with bot, running(FUNCTION_CALL, bot.base_url, tmp_path) as process:
        answer_by_function(bot.wait_for_session(GUARD))
        assert rest_of(process) == ("It is 21 degrees in Oslo.\n", "")
    assert process.returncode == 0


def test_live_talk(tmp_path: Path) -> None:
    """The bot hears the question, its answer is in the file, and the program ends with the bot's session."""
    question, answer = tone(0.5), tone(1.0, amplitude=3000)
    write_wav(tmp_path / "question.wav", [question])
    with EmbeddedBot(speech_threshold=math.inf) as bot, running(LIVE_TALK, bot.base_url, tmp_path) as process:
        session = bot.wait_for_session(GUARD)
        until(lambda: question in session.audio, "the bot has not heard the question")
        session.send_frame(AudioRawFrame(audio=answer, sample_rate=16_000, num_channels=1))
        session.close(1000)
        assert rest_of(process) == ("", "")
    assert process.returncode == 0
    with wave.open(str(tmp_path / "answer.wav")) as file:
        assert (file.getframerate(), file.readframes(file.getnframes())) == (16_000, answer)


def test_kiosk(tmp_path: Path) -> None:
    """A kiosk that starts before its server gets a session, also after code 1000 and after a restart."""
    bot = EmbeddedBot(port=free_port())
    with running(KIOSK, f"http://127.0.0.1:{bot.port}", tmp_path) as process:
        assert process.stdout is not None
        try:
            with bot:
                for text, end in (("one", lambda session: session.close(1000)), ("two", lambda _: bot.stop())):
                    session = bot.wait_for_session(GUARD)
                    assert process.stdout.readline().startswith("BotReadyData(")
                    session.send(transcription(text))
                    assert process.stdout.readline() == f"bot: {text}\n"
                    end(session)
                bot.start()
                session = bot.wait_for_session(GUARD)
                assert process.stdout.readline().startswith("BotReadyData(")
                assert process.poll() is None
        finally:
            process.kill()
