"""Calls through the bridge: audio both ways, interruptions, marks, and every way in which a call ends."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest

from rtvi_sync.media.convert import decode_mulaw, encode_mulaw
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.phone.caller import CHUNK, SILENCE, Caller, bridge_to, talk_until
from tests.support.slowness import GUARD, takes
from tests.support.waiting import until
from tests.support.wavs import tone
from tests.support.wire import AudioRawFrame

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
INVALID = 1007
DONE = 1000


@contextlib.contextmanager
def call(**options: Any) -> Iterator[tuple[EmbeddedBot, Caller]]:
    """Yield a bot with these options, and a caller that is connected to it by the bridge."""
    # On a machine that is busy the voice has gaps, which are not the end of it.
    with EmbeddedBot(**{"hangover": 1.0, **options}) as bot, bridge_to(bot.ws_url) as url, Caller(url) as caller:
        yield bot, caller


def voice(seconds: float, amplitude: int = 8_000) -> bytes:
    """Return speech as a telephone has it."""
    return encode_mulaw(tone(seconds, 8_000, amplitude))


def in_call(bot: EmbeddedBot, caller: Caller) -> BotSession:
    """Return the session of a call whose bot hears the caller."""
    session = bot.wait_for_session(GUARD)
    talk_until(lambda: session.audio, caller)
    return session


def speech_in(pcm: bytes, loudness: int = 1_000) -> memoryview:
    """Return the samples from the first loud one to the last."""
    samples = memoryview(pcm).cast("h")
    loud = [index for index, sample in enumerate(samples) if abs(sample) > loudness]
    return samples[loud[0] : loud[-1] + 1] if loud else samples[:0]


def loudness_of(speech: memoryview) -> float:
    """Return the usual level, whatever gaps it has."""
    return statistics.median(abs(sample) for sample in speech if abs(sample) > 1_000)


def test_a_stranger_s_name_for_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    """The id of a stream, which any stranger may send, is printed short and as text: no terminal obeys it."""
    hostile = "\x1b]0;owned\x07\x1b[2J\nno bot for this call: a forged line" + "x" * 10_000
    with EmbeddedBot() as bot, bridge_to(bot.ws_url) as url:
        with Caller(url, hostile):
            bot.wait_for_session(GUARD)
        printed: list[str] = []

        def has_ended() -> bool:
            printed.extend(capsys.readouterr().out.splitlines())
            return len(printed) == 2

        until(has_ended)
    first, last = printed
    assert first.startswith(r"call '\x1b]0;owned\x07\x1b[2J\nno bot")
    assert last.startswith(r"end of '\x1b]0;owned\x07\x1b[2J\nno bot")
    assert len(first) < 200


def test_audio_both_ways() -> None:
    """The bot hears 16 kHz, its usual rate; speech and answer keep their length and loudness."""
    said = voice(0.5)
    with call(transcripts="Hello") as (bot, caller):
        session = in_call(bot, caller)
        caller.say(said)
        talk_until(lambda: len(caller.heard) > 0.4 * 8_000, caller)
        heard = speech_in(session.audio)
    periods = sum(before < 0 <= after for before, after in itertools.pairwise(heard))
    assert periods == pytest.approx(0.2 / math.tau * 0.5 * 8_000, rel=0.2)
    assert sum(abs(sample) > 1_000 for sample in heard) == pytest.approx(0.92 * 0.5 * 16_000, rel=0.2)
    assert max(heard) == pytest.approx(8_000, rel=0.15)  # the filter rings where the tone starts


def test_a_bot_of_another_rate() -> None:
    """The 24 kHz of a bot become 8 kHz for the caller, as loud and as long."""
    with call(transcripts="Hello", audio_out_sample_rate_hz=24_000) as (bot, caller):
        in_call(bot, caller)
        caller.say(voice(0.5))
        talk_until(lambda: len(caller.heard) > 0.45 * 8_000, caller)
        assert max(speech_in(decode_mulaw(caller.heard))) == pytest.approx(8_000, rel=0.2)


def test_a_caller_who_interrupts() -> None:
    """Twilio gets the order to clear its buffer of the answer, and the next answer is heard."""
    words = " ".join(["word"] * 60)
    with call(transcripts=["Tell me.", "Stop!"], replies=[words, "All right."], echo=False) as (bot, caller):
        session = in_call(bot, caller)
        caller.say(voice(0.4))
        talk_until(lambda: caller.heard, caller)
        cleared = len(caller.cleared)  # one, because bots interrupt themselves whenever the user starts to speak
        caller.say(voice(0.4))
        talk_until(lambda: len(caller.cleared) > cleared, caller)
        heard = len(caller.heard)
        talk_until(lambda: len(caller.heard) > heard, caller)
        assert session.ended is None


def test_what_is_buffered_is_cleared() -> None:
    """A bot that is far ahead is silent at once: all of it is discarded that Twilio has not played."""
    with call(transcripts="Stop!") as (bot, caller):
        ahead = AudioRawFrame(audio=tone(20.0, 8_000), sample_rate=8_000, num_channels=1)
        session = in_call(bot, caller)
        session.send({"label": "rtvi-ai", "type": "bot-started-speaking"})
        session.send_frame(ahead)
        talk_until(lambda: caller.heard, caller)
        caller.say(voice(0.4))
        talk_until(lambda: caller.cleared, caller)
        assert caller.cleared[0] + len(caller.heard) == 20 * 8_000


def say_and_leave(bot: EmbeddedBot, words: bytes, caller: Caller) -> None:
    """Have the bot say something at once and end its session."""
    session = in_call(bot, caller)
    session.send_frame(AudioRawFrame(audio=words, sample_rate=8_000, num_channels=1))
    session.close()


def test_the_bot_leaves() -> None:
    """The bot's last words are played before the bridge hangs up, as a mark behind them shows."""
    goodbye = tone(1.0, 8_000)
    with call() as (bot, caller):
        say_and_leave(bot, goodbye, caller)
        talk_until(lambda: caller.close_code is not None, caller)
        assert caller.heard == encode_mulaw(goodbye)
        assert caller.returned == ["last word"]
        assert caller.close_code == DONE


def test_the_caller_hangs_up() -> None:
    """The bot's session ends, and the stream."""
    with call() as (bot, caller):
        session = in_call(bot, caller)
        caller.hang_up()
        assert session.wait_ended(GUARD).initiator == "client"
        talk_until(lambda: caller.close_code == DONE, caller)


@pytest.mark.parametrize("told", [True, False], ids=["stop", "the connection ends"])
def test_the_caller_hangs_up_while_the_bot_is_being_connected(told: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """The attempt ends with the call, and not with its own limit."""
    with call(ready=False) as (bot, caller), takes(5.0):
        session = bot.wait_for_session()
        talk_until(lambda: session.messages, caller)
        if told:
            caller.hang_up()
            talk_until(lambda: caller.close_code == DONE, caller)
        else:
            caller.websocket.shutdown()
        assert session.wait_ended(GUARD)
    assert "no bot" not in capfd.readouterr().out


def test_a_caller_who_is_gone_in_the_middle() -> None:
    """The bot's session ends although nothing was told, while the bot speaks."""
    with call(transcripts="Tell me.", replies=" ".join(["word"] * 60), echo=False) as (bot, caller):
        session = in_call(bot, caller)
        caller.say(voice(0.4))
        talk_until(lambda: caller.heard, caller)
        assert caller.websocket.sock is not None
        caller.websocket.sock.shutdown(socket.SHUT_RDWR)
        assert session.wait_ended(GUARD).initiator == "client"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "hello",
        "[]",
        "5",
        "{}",
        {"event": 5},
        {"event": "media", "media": {"payload": "no base64!"}},
        b"\xff\xfe\xfd",
        "[" * 50_000,
    ],
    ids=lambda message: str(message)[:30] or "empty",
)
def test_what_twilio_never_sends(message: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The call ends with the code for it, and the bot's session; the next call is answered."""
    with EmbeddedBot() as bot, bridge_to(bot.ws_url) as url:
        with Caller(url) as caller:
            session = in_call(bot, caller)
            caller.send(message)
            assert session.wait_ended(GUARD).initiator == "client"
            talk_until(lambda: caller.close_code is not None, caller)
            assert caller.close_code == INVALID
        with Caller(url) as caller:
            in_call(bot, caller)
            caller.say(voice(0.3))
            talk_until(lambda: caller.heard, caller)
    captured = capfd.readouterr()
    assert ("no call of Twilio's" in captured.out, captured.err) == (True, "")


def test_what_the_bridge_does_not_know() -> None:
    """Events that it has no use for, and a second start, are ignored."""
    with call() as (bot, caller):
        caller.send({"event": "mark", "mark": {"name": "not its own"}})
        caller.send({"event": "media", "media": {}})
        caller.send({"event": "new in 2030"})
        caller.start()
        in_call(bot, caller)
        caller.say(voice(0.3))
        talk_until(lambda: caller.heard, caller)
        assert len(bot.sessions) == 1


def test_keys() -> None:
    """Each key that the caller presses reaches the bot, in order; other characters are ignored."""
    with call() as (bot, caller):
        session = in_call(bot, caller)
        for key in ("1", "", "12", "A", "1" * 100_000, 5, ["1"], None, "#"):
            caller.press(key)

        def pressed() -> list[Any]:
            return [message["data"]["buttons"] for message in session.messages if message["type"] == "dtmf"]

        talk_until(lambda: ["#"] in pressed(), caller)
        assert pressed() == [["1"], ["#"]]


def test_keys_that_the_bot_does_not_know() -> None:
    """The call goes on with a bot that is too old for them."""
    with call(version="1.4.0") as (bot, caller):
        in_call(bot, caller)
        caller.press("1")
        caller.say(voice(0.3))
        talk_until(lambda: caller.heard, caller)


def test_keys_while_the_last_words_are_played() -> None:
    """The bot has left, so no one takes the key; the caller hears all."""
    goodbye = tone(1.0, 8_000)
    with call() as (bot, caller):
        say_and_leave(bot, goodbye, caller)
        talk_until(lambda: caller.unplayed, caller)
        caller.press("1")
        talk_until(lambda: caller.close_code is not None, caller)
        assert (caller.heard, caller.close_code) == (encode_mulaw(goodbye), DONE)


@pytest.mark.parametrize("url_of_bot", ["ws://127.0.0.1:1", "ftp://bot"])
def test_no_bot(url_of_bot: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The bridge hangs up, and its operator reads why."""
    with bridge_to(url_of_bot) as url, Caller(url) as caller:
        talk_until(lambda: caller.close_code == DONE, caller)
    assert "no bot for this call: " in capfd.readouterr().out


def test_calls_at_once() -> None:
    """Each caller hears the own voice, whole, and no other caller's."""
    said = [voice(1.0, 4_000 + 1_000 * index) for index in range(4)]
    with EmbeddedBot() as bot, bridge_to(bot.ws_url) as url, contextlib.ExitStack() as stack:
        callers = [stack.enter_context(Caller(url, f"MZ{index:032}")) for index in range(len(said))]
        talk_until(lambda: len(bot.sessions) == len(said) and all(each.audio for each in bot.sessions), *callers)
        for caller, own in zip(callers, said, strict=True):
            caller.say(own)
        talk_until(lambda: all(len(caller.heard) > 0.9 * 8_000 for caller in callers), *callers)
        for caller, own in zip(callers, said, strict=True):
            heard, spoken = (speech_in(decode_mulaw(each)) for each in (caller.heard, own))
            assert loudness_of(heard) == pytest.approx(loudness_of(spoken), rel=0.1)
        assert len(bot.sessions) == len(said)
        for caller in callers:
            caller.hang_up()
        for session in bot.sessions:
            assert session.wait_ended(GUARD).initiator == "client"


@contextlib.contextmanager
def program(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the bridge as a program of its own; its first line says where it waits."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "samples.phone_bridge", "--port", "0", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "seconds"), [(2, 1), pytest.param(25, 20, marks=pytest.mark.matrix)])
def test_calls_in_real_time(number: int, seconds: int, tmp_path: Path) -> None:
    """Calls in which both sides speak have no gap over 60 ms, unless other programs take the processors."""
    for _ in range(3):
        talk = Talk(number, seconds)
        talk.hold(tmp_path)
        logger.info("%s", talk)
        if (talk.gap <= 60 and talk.share >= 0.995) or not talk.disturbed:
            break
    assert talk.disturbed or (talk.gap <= 60 and talk.share >= 0.995), talk


@attrs.define
class Talk:
    """Calls in which both sides speak all the time.

    Attributes:
        gap: the longest that a caller has heard, in milliseconds.
        share: the share of the worst caller's voice that the bot had heard when it ended.
        processors: that the bridge took, in a second of the call.
        disturbed: whether other programs took more than a tenth of a processor.
    """

    number: int
    seconds: int
    gap: int = 0
    share: float = 0.0
    processors: float = 0.0
    disturbed: bool = False

    def hold(self, folder: Path) -> None:
        """Measure, and check that each side has heard all of the other one, the caller bit exact."""
        voices = [tone(self.seconds, 8_000, 4_000 + 200 * index) for index in range(self.number)]
        with contextlib.ExitStack() as stack:
            bot = stack.enter_context(EmbeddedBot(speech_threshold=math.inf))
            bridge = stack.enter_context(program(folder, "--url", bot.ws_url))
            assert bridge.stdout is not None
            url = bridge.stdout.readline().split()[-1]
            calls = []
            for index in range(self.number):
                caller = stack.enter_context(Caller(url, f"MZ{index:032}"))
                calls.append((caller, bot.wait_for_session(GUARD)))
            callers = [caller for caller, _ in calls]
            talk_until(lambda: all(session.audio for _, session in calls), *callers)
            before = [len(session.audio) for _, session in calls]
            for caller, pcm in zip(callers, voices, strict=True):
                caller.say(encode_mulaw(pcm))
            places = iter(range(0, len(voices[0]) + 1, 2 * CHUNK))

            def spoken() -> bool:
                place = next(places)
                if place == len(voices[0]):
                    return True
                for (_, session), pcm in zip(calls, voices, strict=True):
                    part = pcm[place : place + 2 * CHUNK]
                    session.send_frame(AudioRawFrame(audio=part, sample_rate=8_000, num_channels=1))
                return False

            with processor_times(bridge.pid) as times:
                talk_until(spoken, *callers)
            said = [len(session.audio) for _, session in calls]
            heard_bytes = 2 * len(voices[0])  # at 16 kHz
            self.share = min(now - then for now, then in zip(said, before, strict=True)) / heard_bytes
            self.processors = times["bridge"] / self.seconds
            self.disturbed = times["others"] > 0.1 * self.seconds
            talk_until(lambda: all(len(caller.heard) >= len(voices[0]) // 2 for caller in callers), *callers)
            talk_until(lambda: all(not speech_in(session.audio[-2_000:]) for _, session in calls), *callers)
            self.gap = max(caller.gap() for caller in callers)
            for (caller, session), pcm in zip(calls, voices, strict=True):
                assert caller.heard == encode_mulaw(pcm)
                assert len(speech_in(session.audio)) == pytest.approx(len(pcm), rel=0.1)  # 16 kHz
                caller.hang_up()


@contextlib.contextmanager
def processor_times(pid: int) -> Iterator[dict[str, float]]:
    """Yield the processor seconds of the block, once it has ended: of that process, and of others than it and this."""

    def spent() -> tuple[float, float, float]:
        own, bridge, machine = psutil.Process().cpu_times(), psutil.Process(pid).cpu_times(), psutil.cpu_times()
        nice = getattr(machine, "nice", 0.0)  # Windows has none
        return own.user + own.system, bridge.user + bridge.system, machine.user + nice + machine.system

    times: dict[str, float] = {}
    before = spent()
    yield times
    own, bridge, machine = (now - then for now, then in zip(spent(), before, strict=True))
    times.update(bridge=bridge, others=machine - own - bridge)


@pytest.mark.skipif(sys.platform == "win32", reason="a program cannot press Ctrl-C for another one there")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["embedded bot", "bot elsewhere"])
def test_the_program(elsewhere: bool, tmp_path: Path) -> None:
    """The program says where it waits; Ctrl-C during a call hangs up and ends the bot's session in good order."""
    with EmbeddedBot(transcripts="Hello") as bot:
        with program(tmp_path, *(["--url", bot.ws_url] if elsewhere else [])) as process:
            assert process.stdout is not None
            with Caller(process.stdout.readline().split()[-1], "MZ7") as caller:
                caller.say(20 * (voice(0.4) + SILENCE * 8_000))  # words before the bot is ready are lost
                talk_until(lambda: caller.heard, caller)
                process.send_signal(signal.SIGINT)
                talk_until(lambda: caller.close_code is not None, caller)
            assert process.communicate(timeout=GUARD) == ("call 'MZ7'\nend of 'MZ7'\n", "")
        assert process.returncode == 130
        if elsewhere:
            assert bot.wait_for_session().wait_ended(GUARD).initiator == "client"
