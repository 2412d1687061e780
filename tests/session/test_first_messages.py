"""What a session keeps of its beginning."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rtvi_sync import BotReadyData, RTVIEvent, RTVIMessage
from rtvi_sync.media.tracks import AudioTrack
from rtvi_sync.protocol.engine import Deliver
from rtvi_sync.protocol.tracker import TurnTracker
from rtvi_sync.session.first_messages import TAKEN, FirstMessages

pytestmark = pytest.mark.inside


class FakeIO:
    """An I/O thread whose timers the test fires."""

    def __init__(self) -> None:
        self.timers: list[Any] = []

    def call(self, function: Any) -> None:
        function()

    def call_later(self, delay: float, function: Any) -> None:
        self.timers.append(function)


class FakeFollower:
    def __init__(self) -> None:
        self.sent_messages: list[RTVIMessage] = []
        self.unsent_messages: list[RTVIMessage] = []

    def sent(self, message: RTVIMessage) -> None:
        self.sent_messages.append(message)

    def unsent(self, message: RTVIMessage) -> None:
        self.unsent_messages.append(message)


EFFECT: Any = Deliver(RTVIEvent.BOT_LLM_STARTED, None, "bot-llm-started", None, None)
OF_THE_USER: Any = Deliver(RTVIEvent.USER_TRANSCRIPT, None, "user-transcription", None, None)
TEXT = RTVIMessage("send-text", {"content": "x"}, "1")


def first_of(io: FakeIO, track: AudioTrack | None = None) -> FirstMessages:
    any_io: Any = io
    return FirstMessages(any_io, lambda: track, BotReadyData(version="2.2.0"))


def test_both_directions_and_the_audio() -> None:
    """The first messages of both directions and the bot's audio are passed to the follower."""
    track = AudioTrack(label="bot")
    first = first_of(FakeIO(), track)
    first.received(EFFECT, 1.0, 10)
    track.publish(b"ab", 8000, 1.5)
    first.sent(TEXT)
    entries, audio = first.forward_to(FakeFollower())
    assert entries[0] == (1.0, EFFECT)
    assert entries[1][1] is TEXT
    track.publish(b"cd", 8000, 2.5)
    assert audio is not None
    assert [frame.pcm for frame in audio.take()] == [b"ab", b"cd"]


def test_a_session_without_messages_opens_nothing() -> None:
    """A session without messages opens neither a timer nor a reader."""
    io, track = FakeIO(), AudioTrack(label="bot")
    first = first_of(io, track)
    assert (io.timers, track.readers) == ([], {})
    assert first.forward_to(FakeFollower()) == ([], None)
    first.received(EFFECT, 1.0, 10)
    assert (io.timers, track.readers) == ([], {})


def test_little_audio_is_kept_before_a_message_about_the_bot() -> None:
    """A message about the user keeps 0.2 s, so that a voice that comes a little before its message is whole."""
    io, track = FakeIO(), AudioTrack(label="bot")
    first = first_of(io, track)
    first.received(OF_THE_USER, 1.0, 10)
    for number in range(50):
        track.publish(bytes([number]) * 320, 8000, 1.0 + number / 32)  # 20 ms
    first.received(EFFECT, 2.0, 10)
    for number in range(50, 100):
        track.publish(bytes([number]) * 320, 8000, 2.0)
    entries, audio = first.forward_to(FakeFollower())
    assert (len(io.timers), [entry[1] for entry in entries]) == (1, [OF_THE_USER, EFFECT])
    assert audio is not None
    assert [frame.pcm[0] for frame in audio.take()] == [*range(40, 100)]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_greeting_that_comes_at_once(is_first: bool) -> None:
    """A greeting that starts at once is kept whole, even if its audio precedes the first message about the bot."""
    track = AudioTrack(label="bot")
    first = first_of(FakeIO(), track)
    first.received(OF_THE_USER if is_first else EFFECT, 1.0, 10)
    for number in range(500):
        track.publish(bytes([number % 250]) * 320, 8000, 1.0)  # 20 ms
    first.received(EFFECT, 1.0, 10)
    _, audio = first.forward_to(FakeFollower())
    assert audio is not None
    assert [frame.pcm[0] for frame in audio.take()] == [*range(250), *range(250)]


def test_forgotten_after_a_time() -> None:
    """The first messages are dropped after a time limit."""
    io, track = FakeIO(), AudioTrack(label="bot")
    first = first_of(io, track)
    first.received(EFFECT, 1.0, 10)
    (timer,) = io.timers
    timer()
    track.publish(b"ab", 8000, 1.5)
    first.received(EFFECT, 2.0, 10)
    assert first.forward_to(FakeFollower()) == ([], None)


def test_forgotten_if_it_is_too_much() -> None:
    """The first messages are dropped if they are too large or too many."""
    first = first_of(FakeIO())
    first.received(EFFECT, 1.0, 60_000)
    first.received(EFFECT, 2.0, 60_000)
    assert first.forward_to(FakeFollower())[0] == []
    first = first_of(FakeIO())
    for at in range(1001):
        first.received(EFFECT, at, 1)
    assert first.forward_to(FakeFollower())[0] == []


def test_what_is_of_no_turn_takes_no_room(caplog: pytest.LogCaptureFixture) -> None:
    """Events that belong to no turn are neither kept nor counted; exceeding the limit is logged once."""
    assert {*TurnTracker().events} == TAKEN
    caplog.set_level(logging.DEBUG)
    first = first_of(FakeIO())
    other: Any = Deliver(RTVIEvent.SERVER_MESSAGE, None, "server-message", None, None)
    first.received(EFFECT, 1.0, 10)
    first.received(other, 2.0, 1_000_000)
    for at in range(2000):
        first.received(other, at, 10)
    assert caplog.records == []
    assert first.forward_to(FakeFollower())[0] == [(1.0, EFFECT)]
    first = first_of(FakeIO())
    for at in range(2):
        first.received(EFFECT, at, 1_000_000)
    assert len(caplog.records) == 1


def test_what_could_not_be_sent() -> None:
    """A text that could not be sent is not passed to the follower."""
    first, follower = first_of(FakeIO()), FakeFollower()
    first.sent(TEXT)
    first.unsent(TEXT)
    assert first.forward_to(follower)[0] == []


def test_a_thread_that_sends_while_it_is_handed_over() -> None:
    """What it sends is kept or passed on, never both or neither."""
    first, follower = first_of(FakeIO()), FakeFollower()
    first.forward_to(follower)
    first.sent(TEXT)
    first.unsent(TEXT)
    assert (follower.sent_messages, follower.unsent_messages) == ([TEXT], [TEXT])
