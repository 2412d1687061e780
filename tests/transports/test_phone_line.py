"""The line of a call: the audio sent and heard in each step of 20 ms, on a clock of the test."""

from __future__ import annotations

import array
import base64
import itertools
import json
import math
from typing import Any

import pytest

from rtvi_sync.errors import ProtocolError
from rtvi_sync.media.convert import decode_mulaw, encode_mulaw
from rtvi_sync.protocol.heard import Heard
from rtvi_sync.protocol.telephony import PROVIDERS, CallAudio, ClearAudio, PhoneCall, PlaybackMark
from rtvi_sync.transports.phone_line import STEP, Impairments, PhoneLine, decoded, encoded

pytestmark = pytest.mark.inside


def tone(seconds: float, rate: int = 8000, hz: float = 440.0, level: int = 8000) -> bytes:
    """Return a sine."""
    samples = (round(level * math.sin(2 * math.pi * hz * n / rate)) for n in range(round(seconds * rate)))
    return array.array("h", samples).tobytes()


class Network:
    """A line, and its output at either end."""

    def __init__(self, provider: Any = "twilio", codec: Any = None, **impairments) -> None:
        codecs = PROVIDERS[provider].codecs
        call = PhoneCall(provider=provider, call_id="CA1", stream_id="MZ1", codec=codec or codecs[0])
        self.now = 100.0
        self.sent: list[tuple[float, dict]] = []
        self.seconds = 0.0
        self.heard: list[tuple[float, bytes]] = []
        self.reported: list[tuple[float, str]] = []
        self.line = PhoneLine(
            call,
            Heard(provider, 0.7),
            Impairments(**impairments),
            1_795_000_000.0,
            send=self._send,
            play=lambda pcm: self.heard.append((self.now, pcm)),
            report=lambda messages: self.reported.extend((self.now, message.type) for message in messages),
        )
        self.line.open(self.now)
        self.codec = call.codec

    def _send(self, text: bytes, seconds: float) -> None:
        self.sent.append((self.now, json.loads(text)))
        self.seconds += seconds

    def run(self, seconds: float, source: bytes = b"", rate: int = 8000) -> None:
        """Make the steps of a time, in each of which the caller says 20 ms of a source, as long as it lasts."""
        size = 2 * rate // 50
        for number in range(round(seconds / STEP)):
            self.line.step(self.now, self.now)
            frame = source[number * size : (number + 1) * size]
            if frame:
                self.line.speak(frame, rate, self.now)
            self.now += STEP

    def say(self, pcm: bytes) -> float:
        """Let the bot send audio of 8 kHz."""
        provider = PROVIDERS[self.line_provider]
        return self.line.take(CallAudio(encoded(pcm, provider.bot_codec)), self.now)

    @property
    def line_provider(self) -> str:
        return "exotel" if self.codec == "L16" else "twilio"

    def of(self, event: str) -> list[tuple[float, dict]]:
        """Return the messages sent with an event."""
        return [(at, message) for at, message in self.sent if message["event"] == event]

    def audio(self) -> bytes:
        """Return the audio that the bot received, as PCM."""
        payloads = (base64.b64decode(message["media"]["payload"]) for _, message in self.of("media"))
        return b"".join(decoded(payload, self.codec) for payload in payloads)


def silent_share(pcm: bytes) -> float:
    """Return which share of the frames of 20 ms are silent."""
    frames = [pcm[at : at + 320] for at in range(0, len(pcm), 320)]
    return sum(not any(frame) for frame in frames) / len(frames)


# -- the caller -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "opening"),
    [
        ("twilio", ["connected", "start"]),
        ("telnyx", ["connected", "start"]),
        ("plivo", ["start"]),
        ("exotel", ["connected", "start"]),
    ],
)
def test_silence_flows_from_the_first_moment(provider, opening):
    """A call starts with the provider's first messages, and then sends audio, even while both sides are silent."""
    network = Network(provider)
    network.run(1.0)
    assert [message["event"] for _, message in network.sent[: len(opening)]] == opening
    media = network.of("media")
    each = PROVIDERS[provider].frame_seconds
    assert len(media) == round(1.0 / each)
    assert not any(network.audio())
    assert len(network.audio()) == 16_000
    assert network.seconds == pytest.approx(1.0)


def test_what_is_said_arrives_as_it_is():
    """At 8 kHz nothing is converted but by the codec."""
    network, said = Network(), tone(0.5)
    network.run(1.0, said)
    assert decode_mulaw(encode_mulaw(said)) in network.audio()
    assert len(network.of("media")) in (50, 51)


@pytest.mark.parametrize("rate", [16_000, 48_000, 44_100])
def test_the_last_syllable_does_not_wait_for_the_next(rate):
    """Audio that a converter holds back is sent when the source falls silent."""
    network, said = Network(), tone(0.4, rate)
    network.run(1.0, said, rate)
    audible = [n for n in range(0, len(network.audio()), 320) if any(network.audio()[n : n + 320])]
    first, last = audible[0] / 16_000, audible[-1] / 16_000 + STEP
    assert last - first == pytest.approx(0.4, abs=0.061)
    assert last < 0.55


def test_a_frame_that_is_late_gets_no_hole():
    """Audio of a source with a thread is 20 ms late now and then, and its words must not be torn apart."""
    network, said = Network(), tone(0.4)
    frames = [said[at : at + 320] for at in range(0, len(said), 320)]
    for number, frame in enumerate(frames):
        if number % 4 != 3:
            network.line.speak(frame, 8000, network.now)
        if number % 4 == 0 and number:
            network.line.speak(frames[number - 1], 8000, network.now)
        network.line.step(network.now, network.now)
        network.now += STEP
    spoken = network.audio()
    assert silent_share(spoken[320 : len(spoken) - 960]) == 0


def test_what_is_too_old_is_dropped_and_counted():
    """After a pause of the process its frames are not sent in one burst."""
    network, said = Network(), tone(1.0)
    network.run(0.2, said)
    before = len(network.of("media"))
    network.now += 1.0
    for at in range(6400, 32_000 // 2, 320):
        network.line.speak(said[at : at + 320], 8000, network.now)
    burst = len(network.of("media")) - before
    assert burst <= 11
    assert network.line.unsent == pytest.approx(30 * STEP - burst * STEP, abs=0.021)


def test_missed_steps_are_made_up_in_order():
    """A short stop of the process, after which a source and the line have the same steps to make, tears no word."""
    network, said = Network(), tone(0.6)
    network.run(0.2, said)
    late = network.now + 0.15
    for number in range(10, 18):
        network.line.step(network.now, late)
        network.line.speak(said[number * 320 : (number + 1) * 320], 8000, late)
        network.now += STEP
    assert decode_mulaw(encode_mulaw(said[: 18 * 320])) in network.audio()
    assert network.line.unsent == 0.0


def test_a_pause_of_the_process_is_not_filled_with_silence():
    """Seconds of silence that are sent at once help neither side."""
    network = Network()
    network.run(0.2)
    before = len(network.of("media"))
    network.now += 5.0
    network.run(0.1)
    assert len(network.of("media")) - before <= 12


@pytest.mark.parametrize("codec", ["PCMU", "PCMA"])
def test_a_caller_of_telnyx_may_speak_a_law(codec):
    """The caller's audio has the codec of the call, and the bot's is µ-law regardless."""
    network, said = Network("telnyx", codec), tone(0.2)
    network.run(0.5, said)
    assert decoded(encoded(said, codec), codec) in network.audio()
    network.line.take(CallAudio(encode_mulaw(said)), network.now)
    network.run(0.5)
    assert b"".join(pcm for _, pcm in network.heard) == decode_mulaw(encode_mulaw(said))


# -- the network ------------------------------------------------------------------------------------------------------


def test_lost_frames_are_silent():
    """About as many as were asked for."""
    network = Network(loss=0.3, seed=7)
    network.run(2.2, tone(2.0))
    spoken = network.audio()[320 : 320 + 32_000 - 320]
    assert 0.15 <= silent_share(spoken) <= 0.45


def test_the_same_seed_gives_the_same_bytes():
    """A test that fails can be repeated."""
    sent = []
    for seed in (7, 7, 8):
        network = Network(loss=0.3, jitter=0.1, seed=seed)
        network.run(2.2, tone(2.0))
        network.line.hang_up()
        sent.append([message for _, message in network.of("media")])
    assert sent[0] == sent[1]
    assert sent[0] != sent[2]


def test_jitter_holds_frames_back_and_sends_them_together():
    """In their order, and none is lost."""
    network, said = Network(jitter=0.1, seed=1), tone(1.0)
    network.run(1.2, said)
    assert decode_mulaw(encode_mulaw(said)) in network.audio()
    times = [at for at, _ in network.of("media")]
    together = max(times.count(at) for at in times)
    assert 2 <= together <= 8


# -- keys -------------------------------------------------------------------------------------------------------------


def test_keys_are_100_ms_apart():
    """In order, one a message."""
    network = Network()
    pressed = network.line.press("12#")
    network.run(0.1)
    assert pressed.left == "2#"
    assert not pressed.over.is_set()
    network.run(0.4)
    keys = network.of("dtmf")
    assert [message["dtmf"]["digit"] for _, message in keys] == ["1", "2", "#"]
    assert all(b - a >= 0.099 for (a, _), (b, _) in itertools.pairwise(keys))
    assert pressed.over.is_set()
    assert pressed.left == ""


def test_keys_after_the_end_are_not_sent():
    """The call that pressed them is woken."""
    network = Network()
    pressed = [network.line.press("12")]
    network.line.drop_keys()
    pressed.append(network.line.press("3"))
    assert all(each.over.is_set() and each.left for each in pressed)


# -- the bot ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["twilio", "exotel"])
def test_a_burst_is_heard_in_its_time(provider):
    """Two seconds in one message are heard for two seconds, and the mark behind them is answered then."""
    network = Network(provider)
    network.run(0.1)
    began, said = network.now, tone(2.0)
    assert network.say(said) == pytest.approx(2.0)
    network.line.take(PlaybackMark("m1"), network.now)
    network.run(3.0)
    assert b"".join(pcm for _, pcm in network.heard) == decoded(encoded(said, network.codec), network.codec)
    assert network.heard[-1][0] - network.heard[0][0] == pytest.approx(1.98)
    ((at, mark),) = network.of("mark")
    assert mark["mark"] == {"name": "m1"}
    assert at - began == pytest.approx(1.98, abs=0.03)


def test_clear_empties_the_line():
    """Audio that was not heard yet is dropped, and its marks are answered at once."""
    network = Network()
    network.say(tone(5.0))
    network.line.take(PlaybackMark("end"), network.now)
    network.run(0.6)
    network.line.take(ClearAudio(), network.now)
    assert not network.line.is_playing
    assert len(network.of("mark")) == 1
    network.run(0.4)
    assert sum(len(pcm) for _, pcm in network.heard) / 16_000 == pytest.approx(0.6)
    assert [name for _, name in network.reported] == [
        "bot-ready",
        "bot-started-speaking",
        "bot-interrupted",
        "bot-stopped-speaking",
    ]


def test_plivo_answers_clear():
    """The other providers do not."""
    answers = []
    for provider in PROVIDERS:
        network = Network(provider)
        network.line.take(ClearAudio(), network.now)
        answers.append([message["event"] for _, message in network.sent if message["event"].startswith("clear")])
    assert answers == [[], [], ["clearedAudio"], []]


def test_a_mark_without_audio_is_answered_at_once():
    """Nothing stands before it."""
    network = Network()
    network.line.take(PlaybackMark("m1"), network.now)
    assert len(network.of("mark")) == 1


def test_marks_without_end_are_refused():
    """A bot that sends them while a minute waits must not fill the memory; those before are answered."""
    network = Network()
    network.say(tone(1.0))
    for number in range(4000):
        network.line.take(PlaybackMark(str(number)), network.now)
    with pytest.raises(ProtocolError, match="while 4000 others wait"):
        network.line.take(PlaybackMark("more"), network.now)
    network.run(1.1)
    assert len(network.of("mark")) == 4000
    network.line.take(PlaybackMark("again"), network.now)
    assert len(network.of("mark")) == 4001


def test_more_than_a_minute_is_dropped_and_counted():
    """A bot that sends without end must not fill the memory."""
    network = Network()
    for _ in range(7):
        network.say(tone(10.0))
    assert network.line.unheard == pytest.approx(10.0)
    network.run(61.0)
    assert sum(len(pcm) for _, pcm in network.heard) / 16_000 == pytest.approx(60.0)


def test_the_bot_is_ready_when_it_has_not_refused():
    """A bot that waits for the caller says nothing."""
    network = Network()
    network.run(0.48)
    assert network.reported == []
    network.run(0.1)
    assert [name for _, name in network.reported] == ["bot-ready"]


def test_the_caller_hangs_up():
    """A caller who hangs up sends the held audio, and then the provider's last message, if it has one."""
    network = Network(jitter=5.0, seed=3)
    network.run(0.2)
    assert network.of("media") == []
    network.line.hang_up()
    assert [message["event"] for _, message in network.sent[-2:]] == ["media", "stop"]
    plivo = Network("plivo")
    before = len(plivo.sent)
    plivo.line.hang_up()
    assert len(plivo.sent) == before
