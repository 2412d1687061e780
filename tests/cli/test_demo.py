"""The demo as a whole, in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from rtvi_sync import cli
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support import part_probes
from tests.support.slowness import GUARD, takes
from tests.support.wavs import silence, tone, write_wav
from tests.support.wire import rms

ROOT = Path(__file__).parents[2]
NUMBERS = r" +(\d+)" * 3


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the demo as a user does, in a folder of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "rtvi_sync", "demo", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


@attrs.frozen
class Result:
    """The result of a run of the demo."""

    status: int
    lines: list[str]
    errors: str
    seconds: float
    folder: Path
    #: Seconds beyond the duration on an idle machine.
    late: float = 0.0

    @property
    def transcript(self) -> list[str]:
        """Return the transcript's lines."""
        return [match[1] for line in self.lines if (match := re.match(r" +[\d.]+ s  ((?:you|bot)  .*)", line))]


def finish(process: subprocess.Popen[str], folder: Path, since: float) -> Result:
    """Wait for the end of a demo."""
    output, errors = process.communicate(timeout=GUARD)
    return Result(process.returncode, output.splitlines(), errors, time.monotonic() - since, folder)


def channels(path: Path) -> tuple[int, bytes, bytes]:
    """Return the rate and both channels of a stereo recording."""
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (2, 2)
        data = file.readframes(file.getnframes())
        left, right = (bytearray(len(data) // 2) for _ in range(2))
        for channel, pcm in enumerate((left, right)):
            pcm[::2], pcm[1::2] = data[2 * channel :: 4], data[2 * channel + 1 :: 4]
        return file.getframerate(), bytes(left), bytes(right)


def audible_spans(pcm: bytes, rate: int, shortest_pause: float = 0.3) -> list[tuple[float, float]]:
    """Return the start and end of each audible span, in seconds."""
    window = rate // 50
    loud = [at / rate for at in range(0, len(pcm) // 2, window) if rms(pcm[2 * at : 2 * (at + window)]) > 300]
    spans: list[tuple[float, float]] = []
    for moment in loud:
        if spans and moment - spans[-1][1] < shortest_pause:
            spans[-1] = (spans[-1][0], moment)
        else:
            spans.append((moment, moment))
    return spans


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Run the demo once without arguments, in well under a minute."""
    folder, since = tmp_path_factory.mktemp("demo"), time.monotonic()
    with takes(30.0) as watch:
        result = finish(start(folder), folder, since)
    return attrs.evolve(result, late=watch.took - watch.given)


def test_it_succeeds_without_noise(shown: Result) -> None:
    """Status 0, nothing on stderr."""
    assert (shown.status, shown.errors) == (0, "")


def test_it_says_what_the_embedded_bot_is_not(shown: Result) -> None:
    """The words of speech.txt cannot be mistaken for speech recognition."""
    text = " ".join(shown.lines[:4])
    assert "no speech recognition" in text
    assert "speech.txt" in text
    assert "--url" in text


def test_it_shows_the_transcript_of_both(shown: Result) -> None:
    """Every line of the shipped text is followed by the bot's answer."""
    said = ROOT.joinpath("rtvi_sync/cli/speech.txt").read_text(encoding="utf-8").splitlines()
    assert shown.transcript == [line for text in said for line in (f"you  {text}", f"bot  You said: {text}")]


def test_it_shows_a_latency_for_each_turn(shown: Result) -> None:
    """A row for each turn and the median, in milliseconds, counted from the end of the voice.

    Counted from the moment at which the bot detects the end they would be near zero. A microphone that was late and
    catches up shortens the pause of 600 ms that the bot waits for.
    """
    table = shown.lines[next(index for index, line in enumerate(shown.lines) if line.startswith("turn")) + 1 :]
    rows = [re.fullmatch(r"(\w+) +spoken" + NUMBERS, line) for line in table[:3]]
    assert [row[1] for row in rows if row] == ["1", "2", "median"]
    for row in rows:
        assert row is not None
        transcript, text, sound = map(int, row.groups()[1:])
        assert 250 < transcript <= text <= sound


def test_it_records_both_voices_on_one_time_line(shown: Result) -> None:
    """Left the user, right the bot, in turn, each bot's turn a hang-over and a chunk after the user's."""
    path = shown.folder / "conversation.wav"
    assert any(str(path) in line for line in shown.lines)
    rate, left, right = channels(path)
    assert rate == 24_000
    assert 10 < len(left) / 2 / rate < shown.seconds
    # On a busy machine both have pauses in the middle of a turn, and start late; between the turns are about 4 s.
    user, bot = (audible_spans(side, rate, min(0.3 + shown.late, 2.0)) for side in (left, right))
    assert len(user) == len(bot) == 2
    for (user_begin, user_end), (bot_begin, bot_end) in zip(user, bot, strict=True):
        assert bot_begin - user_end > 0.25 - shown.late
        # The embedded bot plays the audio it received. A late microphone leaves gaps, or catches up.
        assert abs((bot_end - bot_begin) - (user_end - user_begin)) < 0.3 + shown.late
    assert bot[0][1] < user[1][0] + shown.late


@pytest.fixture
def hostile_bot() -> Iterator[EmbeddedBot]:
    """Start a bot whose texts all contain terminal escape codes."""
    with EmbeddedBot(transcripts=["\x1b[2Jone"], replies=["\x1b]0;owned\x07two\x9b31m"]) as bot:
        yield bot


def test_no_escape_code_of_a_bot_reaches_the_terminal(hostile_bot: EmbeddedBot, one_word: Path, tmp_path: Path) -> None:
    """Transcripts, answers, errors, warnings and the reason of the end are shown without control characters."""

    def misbehave() -> None:
        session = hostile_bot.wait_for_session(GUARD)
        session.wait_for_message("client-ready", GUARD)
        for type_, data in (
            ("error", {"error": "\x1b[5mbad", "fatal": False}),
            ("bot-output", {"text": 5, "\x1b[31m": "\x1b[31m"}),
            ("bot-llm-text", {"text": ["\x1b[31m"]}),
        ):
            session.send({"label": "rtvi-ai", "type": type_, "data": data})
        session.wait_ended(GUARD)

    thread = threading.Thread(target=misbehave)
    thread.start()
    arguments = ("--url", hostile_bot.ws_url, "--speech", str(one_word), "--greeting", "0")
    result = finish(start(tmp_path, *arguments), tmp_path, time.monotonic())
    thread.join(GUARD)
    assert result.status == 0
    assert result.transcript == ["you   [2Jone", "bot   ]0;owned two 31m"]
    assert "the bot reports an error:  [5mbad" in "\n".join(result.lines)
    assert "WARNING" in result.errors
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", "\n".join([*result.lines, result.errors]))


@pytest.mark.parametrize("path", ["", "/", "/connect", "/start"])
def test_a_url_of_http_asks_the_server_for_a_bot(
    path: str, one_word: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base of a connect endpoint, the endpoint itself, and a runner's start endpoint."""
    part_probes.replace_conversation(monkeypatch, "demo", _say_nothing)
    out = tmp_path / "x.wav"
    with EmbeddedBot() as bot:
        status = cli.main(["demo", "--url", bot.base_url + path, "--speech", str(one_word), "--out", str(out)])
        session = bot.wait_for_session(1)
        assert session.wait_for_message("client-ready")
    shown = capsys.readouterr()
    assert "connected to rtvi_sync.testing" in shown.out
    assert (status, shown.err) == (0, "")


def _say_nothing(*_: object, **__: object) -> None:
    """Replace the conversation."""


def test_a_server_that_wants_a_header_and_a_token(one_word: Path, tmp_path: Path) -> None:
    """The demo takes the options of `talk`."""
    with EmbeddedBot(headers={"X-Key": "k"}) as bot:
        options = ("--speech", str(one_word), "--header", "X-Key: k", "--token", "abc")
        process = start(tmp_path, "--url", f"{bot.base_url}/connect", *options)
        session = bot.wait_for_session(GUARD)
        assert session.path.endswith("?token=abc")
        session.wait_for_message("client-ready", GUARD)
        session.close(1000)
        assert finish(process, tmp_path, since=0).status == 1


def test_a_bot_that_is_not_ready_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit is the one on the command line."""
    with EmbeddedBot(ready=False) as bot:
        assert cli.main(["demo", "--url", bot.ws_url, "--timeout", "0.2", "--out", str(tmp_path / "out.wav")]) == 1
    assert "within 0.2 s" in capsys.readouterr().err


def test_an_unreachable_bot_is_two_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1; the error names each attempt, its failure, and the word that explains it; no file is left."""
    out = tmp_path / "x.wav"
    for url in ("http://127.0.0.1:1", "http://127.0.0.1:1/start", "ws://127.0.0.1:1"):
        assert cli.main(["demo", "--url", url, "--out", str(out)]) == 1
        error = capsys.readouterr().err
        assert error.startswith("rtvi-sync demo: ")
        assert "127.0.0.1:1" in error
        assert re.fullmatch(r".*\n  See: rtvi-sync explain [a-z-]+\n", error)
    assert not out.exists()


def test_a_wrong_endpoint_comes_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A runner has no connect endpoint; the error names the endpoint by which it starts bots."""
    errors = []
    with EmbeddedBot() as bot:
        for path in ("/nosuch", "/nosuch/start"):
            assert cli.main(["demo", "--url", bot.base_url + path, "--out", str(tmp_path / "x.wav")]) == 1
            errors.append(capsys.readouterr().err)
    advice = "a Pipecat runner's start endpoint ends in /start"
    assert re.search(f"404.*{advice}", errors[0])
    assert "404" in errors[1]
    assert advice not in errors[1]


def test_a_place_that_cannot_be_written_is_told_before_anything_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path is checked before the conversation, so that no recording is lost."""
    assert cli.main(["demo", "--out", str(tmp_path / "no" / "x.wav")]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("rtvi-sync demo: Cannot write ")


def test_the_speech_is_not_overwritten(one_word: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recording in its place is refused."""
    before = one_word.read_bytes()
    assert cli.main(["demo", "--speech", str(one_word), "--out", str(one_word)]) == 1
    assert capsys.readouterr().err.startswith("rtvi-sync demo: --speech and --out are the same file, ")
    assert one_word.read_bytes() == before


def test_no_time_at_all_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The bot is not blamed for it."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["demo", "--seconds", "0"])
    assert "'0' is not a positive number of seconds" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="a program cannot press Ctrl-C for another one there")
def test_ctrl_c_keeps_what_was_said(tmp_path: Path) -> None:
    """Status 130, no traceback, and the recording up to that moment."""
    tmp_path.joinpath("words.txt").write_text("First word.\n\n" + "Another word.\n\n" * 9)
    words = write_wav(tmp_path / "words.wav", [silence(0.8), tone(0.3)] * 10)
    since, process = time.monotonic(), start(tmp_path, "--speech", str(words))
    assert process.stdout is not None
    assert any("you  First word." in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    result = finish(process, tmp_path, since)
    assert (result.status, result.errors) == (130, "")
    rate, left, _ = channels(tmp_path / "conversation.wav")
    assert 1 <= len(audible_spans(left, rate)) < 10


@pytest.mark.parametrize("form", [lambda bot: bot.base_url, lambda bot: bot.ws_url], ids=["http", "ws"])
def test_a_bot_that_has_the_eval_route_only(
    form: Callable[[EmbeddedBot], str], eval_bot: EmbeddedBot, one_word: Path, tmp_path: Path
) -> None:
    """A bot that has the eval route only is talked to as any other, and failed attempts print nothing."""
    arguments = ("--url", form(eval_bot), "--speech", str(one_word), "--greeting", "0")
    result = finish(start(tmp_path, *arguments), tmp_path, time.monotonic())
    assert (result.status, result.errors) == (0, "")
    assert result.transcript == ["you  Hello my bot.", "bot  You said: Hello my bot."]
    rate, user, bot_side = channels(tmp_path / "conversation.wav")
    assert len(audible_spans(user, rate, 2.0)) == len(audible_spans(bot_side, rate, 2.0)) == 1


def test_bots_at_another_rate_are_recorded_too(one_word: Path, tmp_path: Path) -> None:
    """The user's side is resampled to the bot's rate, without soxr too."""
    with EmbeddedBot(audio_out_sample_rate_hz=24_000) as bot, pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "soxr", None)
        patch.chdir(tmp_path)
        status = cli.main(["demo", "--url", bot.ws_url, "--speech", str(one_word), "--greeting", "0"])
        sent = bot.wait_for_session(1)
        assert isinstance(sent, BotSession)
    assert status == 0
    rate, user, bot_side = channels(tmp_path / "conversation.wav")
    assert rate == 24_000
    assert len(audible_spans(user, rate, 2.0)) == len(audible_spans(bot_side, rate, 2.0)) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit for the size of files")
def test_a_full_disk(tmp_path: Path) -> None:
    """The last line names the file, and the part that fitted on the disk can be played."""
    write_wav(tmp_path / "speech.wav", [tone(0.5)])
    words = ["sh", "-c", 'ulimit -f 20; exec "$@"', "sh", sys.executable, "-m", "rtvi_sync", "demo"]
    # The file in which coverage notes the lines of a process would be full as well.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    result = subprocess.run(
        [*words, "--speech", "speech.wav", "--out", "out.wav"],
        cwd=tmp_path,
        env={**variables, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=GUARD,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(
        f"rtvi-sync demo: The recording {tmp_path / 'out.wav'} is not complete"
    )
    _, left, _ = channels(tmp_path / "out.wav")
    assert len(left) > 1000
