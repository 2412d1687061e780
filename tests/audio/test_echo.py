"""A loudspeaker that a microphone hears, and a bot that is interrupted by whatever sounds like speech."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache, partial, wraps
from typing import Any

import numpy as np
import pytest

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support import part_probes
from tests.support.busy import undisturbed
from tests.support.protobuf import AudioRawFrame, InterruptionFrame
from tests.support.slowness import GUARD
from tests.support.waiting import until

from .pulse import RATE, PulseServer, Samples
from .sessions import client_of, once
from .signals import SOUND, loud_seconds, speech

pywebrtc_audio = pytest.importorskip("pywebrtc_audio")

HEARD_HZ = 16000
CHUNK = HEARD_HZ // 50
#: How loud the loudspeaker is at the microphone: half as loud as the user.
ECHO = "80%"


@cache
def user_voice() -> Samples:
    """Return three seconds of another voice than the bot's."""
    said = speech(60.0)
    higher = np.interp(np.arange(len(said) // 2, len(said), 1.25), np.arange(len(said)), said)
    return np.asarray(higher[: 3 * RATE], np.int16)


class Ears:
    """A bot's ears: 200 of 300 ms that are voiced and loud are speech, as for the detectors of real bots."""

    def __init__(self, session: BotSession) -> None:
        self._session = session
        self._position = 0
        self._detector = pywebrtc_audio.VoiceDetector(HEARD_HZ)
        self._voiced: deque[bool] = deque(maxlen=15)

    def hear_speech(self, seconds: float) -> bool:
        """Listen to the next seconds, and return True at once if there is speech."""
        return any(sum(self._voiced) >= 10 for _ in self._chunks(seconds))

    def _chunks(self, seconds: float) -> Iterator[None]:
        for _ in range(int(seconds * 50)):
            end = self._position + 2 * CHUNK
            until(self._has_chunk, "the microphone sends nothing", GUARD)
            chunk = np.frombuffer(self._session.audio[self._position : end], np.int16)
            self._detector.process(chunk)
            loud = float(np.sqrt((chunk.astype(float) ** 2).mean())) > SOUND
            self._voiced.append(loud and self._detector.speech_probability > 0.5)
            self._position = end
            yield

    def _has_chunk(self) -> bool:
        return len(self._session.audio) >= self._position + 2 * CHUNK

    def skip(self) -> None:
        """Skip the audio that arrived until now."""
        self._position = len(self._session.audio)


def speak(session: BotSession, seconds: float) -> None:
    """Have the bot say something, sent at once."""
    said = np.resize(speech(60.0), int(seconds * RATE))
    for begin in range(0, len(said), RATE // 25):
        pcm = said[begin : begin + RATE // 25].tobytes()
        session.send_frame(AudioRawFrame(audio=pcm, sample_rate=RATE, num_channels=1))


def decibels(samples: Samples) -> float:
    """Return the level."""
    return float(10 * np.log10((samples.astype(float) ** 2).mean() + 1e-3))


class Cost:
    """The processor time of the cancellation, on all threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        part_probes.wrap_echo_cancellation(monkeypatch, self._measured)

    def _measured(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def measured(*args: Any) -> Any:
            begin = time.thread_time()
            try:
                return method(*args)
            finally:
                self.seconds += time.thread_time() - begin

        return measured


class Talk:
    """One conversation: the bot speaks, after six seconds the user speaks, too, and the bot is interrupted.

    Attributes:
        interrupted_itself: in the six seconds.
        loss: of the echo in decibels, from the fourth second on.
        cost: the processor time of the cancellation, in seconds per second.
        was_heard: the user was heard within three seconds, and the bot was silent then.
    """

    def __init__(self, pulse: PulseServer, library: str, cost: Cost) -> None:
        with (
            EmbeddedBot(speech_threshold=math.inf) as bot,
            client_of(bot.ws_url, echo_cancellation=True, audio_backend=library),
            pulse.record("mic_a", HEARD_HZ) as mic,
            pulse.record() as speaker,
        ):
            session = bot.wait_for_session(GUARD)
            ears = Ears(session)
            speak(session, 30.0)
            speaker.wait_for(lambda heard: loud_seconds(heard) > 0.1, "nothing is heard")
            ears.skip()
            before = cost.seconds
            self.interrupted_itself = ears.hear_speech(6.0)
            self.cost = (cost.seconds - before) / 6.0
            left = np.frombuffer(session.audio, np.int16)[-2 * HEARD_HZ :]
            self.loss = decibels(mic.samples()[-2 * HEARD_HZ :]) - decibels(left)
            user = pulse.play(user_voice())
            self.was_heard = ears.hear_speech(3.0)
            session.send_frame(InterruptionFrame())
            speaker.wait(0.5)
            self.was_heard = self.was_heard and loud_seconds(speaker.wait(0.5)) == 0.0
            user.wait(GUARD)  # so that the next bot does not hear it


def test_a_bot_is_interrupted_by_the_user_alone(
    pulse: PulseServer, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The echo is 25 dB weaker after four seconds, at 5 % of a processor, and the user is heard beside it."""
    pulse.loop(ECHO)
    cost = Cost(monkeypatch)

    def attempt() -> bool:
        talk = Talk(pulse, library, cost)
        assert talk.cost < 0.05
        return talk.was_heard and not talk.interrupted_itself and talk.loss > 25

    assert once(attempt)


@pytest.mark.matrix
def test_ten_conversations(pulse: PulseServer, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bot of ten interrupts itself, and nine users of ten are heard."""
    pulse.loop(ECHO)
    cost = Cost(monkeypatch)
    talks = [
        undisturbed(partial(Talk, pulse, library, cost), lambda talk: talk.was_heard and not talk.interrupted_itself)
        for _ in range(10)
    ]
    assert not any(talk.interrupted_itself for talk in talks)
    assert sum(talk.was_heard for talk in talks) >= 9
    assert float(np.median([talk.loss for talk in talks])) > 25
    assert max(talk.cost for talk in talks) < 0.05


def test_without_it_the_bot_interrupts_itself(pulse: PulseServer) -> None:
    """The ears of these tests hear the echo."""
    pulse.loop(ECHO)
    with EmbeddedBot(speech_threshold=math.inf) as bot, client_of(bot.ws_url):
        session = bot.wait_for_session(GUARD)
        speak(session, 6.0)
        assert Ears(session).hear_speech(6.0)
