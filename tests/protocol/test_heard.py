"""Detection of the speaker in a call from its audio."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.protocol.heard import Heard, moment_of

pytestmark = pytest.mark.inside

LOUD, SILENT = 3000.0, 0.0
HANGOVER = 0.7


class Ears:
    """Both sides of a line in frames of 20 ms, with the reports about them."""

    def __init__(self) -> None:
        self.heard = Heard("twilio", HANGOVER)
        self.frames = 0
        self.reported: list[tuple[float, str]] = []

    def hear(self, seconds: float, *, user: float = SILENT, bot: float = SILENT) -> list[str]:
        """Let time pass; return the reports."""
        before = len(self.reported)
        for _ in range(round(seconds * 50)):
            self.frames += 1
            at = self.frames / 50
            self.report(self.heard.caller(user, at))
            self.report(self.heard.bot(bot, at))
        return [name for _, name in self.reported[before:]]

    def next_of_bot(self):
        """Let 20 ms pass in silence; return the messages about the bot."""
        self.frames += 1
        return self.heard.bot(SILENT, self.frames / 50)

    def clear(self, *, is_unheard: bool) -> list[str]:
        """Let the bot drop its audio."""
        messages = self.heard.cleared(self.frames / 50, is_unheard=is_unheard)
        self.report(messages)
        return [message.type for message in messages]

    def report(self, messages) -> None:
        self.reported += [(self.frames / 50, message.type) for message in messages]


@pytest.fixture
def ears():
    """Return a line on which nothing was heard yet."""
    return Ears()


def test_the_bot_is_ready_once(ears):
    """The first sign of the bot makes it ready, and no later one."""
    (ready,) = ears.heard.answered()
    assert (ready.type, ready.data) == ("bot-ready", {"version": "", "about": {"library": "twilio"}})
    assert ears.heard.answered() == []


def test_a_side_speaks_until_the_hangover_has_passed(ears):
    """Pauses that are shorter than the hang-over belong to the speech."""
    assert ears.hear(0.3, bot=LOUD) == ["bot-started-speaking"]
    assert ears.hear(0.6) == []
    assert ears.hear(0.3, bot=LOUD) == []
    assert ears.hear(0.8) == ["bot-stopped-speaking"]
    assert ears.hear(0.3, user=LOUD) == ["user-started-speaking"]
    assert ears.hear(0.8) == ["user-stopped-speaking"]


def test_a_click_of_the_caller_is_no_speech(ears):
    """40 ms are not yet speech of the caller; a turn of theirs would wait for an answer for ever."""
    assert ears.hear(0.04, user=LOUD) == []
    assert ears.hear(1.0) == []
    assert ears.hear(0.06, user=LOUD) == ["user-started-speaking"]


def test_noise_is_no_speech(ears):
    """Sound far below the loudest speech of a side counts as its noise."""
    ears.hear(0.4, bot=LOUD)
    assert ears.hear(0.8, bot=0.03 * LOUD) == ["bot-stopped-speaking"]


def test_soft_speech_is_heard_after_loud_one(ears):
    """The loudest frame counts for seconds, not for ever."""
    ears.hear(0.4, bot=30_000)
    ears.hear(8.0)
    assert ears.hear(0.1, bot=400) == ["bot-started-speaking"]


def test_an_early_answer_ends_the_question_first(ears):
    """A bot that answers within the caller's hang-over answers a question that is over."""
    ears.hear(0.4, user=LOUD)
    ears.hear(0.3)
    assert ears.hear(0.1, bot=LOUD) == ["user-stopped-speaking", "bot-started-speaking"]


def test_an_early_question_ends_the_answer(ears):
    """Speech that answers a question within the bot's hang-over is a new answer."""
    ears.hear(0.4, bot=LOUD)
    ears.hear(0.3)
    assert ears.hear(0.2, user=LOUD) == ["user-started-speaking", "bot-stopped-speaking"]
    ears.hear(0.3)
    assert ears.hear(0.1, bot=LOUD) == ["user-stopped-speaking", "bot-started-speaking"]


def test_both_may_speak_at_once(ears):
    """As long as both are audible, neither has stopped."""
    ears.hear(0.4, bot=LOUD)
    assert ears.hear(1.0, bot=LOUD, user=LOUD) == ["user-started-speaking"]


@pytest.mark.parametrize("is_unheard", [True, False])
def test_clear_interrupts_a_bot_that_speaks(ears, is_unheard):
    """A `clear` is an interruption also if all was just heard."""
    ears.hear(0.4, bot=LOUD)
    ears.hear(0.2, bot=LOUD, user=LOUD)
    assert ears.clear(is_unheard=is_unheard) == ["bot-interrupted", "bot-stopped-speaking"]
    assert ears.hear(0.8) == ["user-stopped-speaking"]


def test_clear_in_silence_is_no_interruption(ears):
    """Pipecat's bots send `clear` whenever the caller starts to speak."""
    assert ears.clear(is_unheard=False) == []
    ears.hear(0.4, bot=LOUD)
    ears.hear(0.3)
    assert ears.clear(is_unheard=False) == ["bot-stopped-speaking"]
    assert ears.hear(1.0) == []


def test_clear_before_the_first_word_is_an_interruption(ears):
    """Audio that was sent but not heard yet is lost."""
    assert ears.clear(is_unheard=True) == ["bot-interrupted"]


def test_the_end_ends_what_is_said(ears):
    """No side speaks after the call."""
    ears.hear(0.4, bot=LOUD, user=LOUD)
    assert [message.type for message in ears.heard.closed(ears.frames / 50)] == [
        "user-stopped-speaking",
        "bot-stopped-speaking",
    ]
    assert ears.heard.closed(ears.frames / 50) == []


def test_a_stop_tells_when_it_was(ears):
    """A side is known to be silent only after the hang-over, and has stopped when it was audible last."""
    ears.hear(0.4, bot=LOUD)
    ears.hear(0.6)
    last = ears.frames / 50 - 0.6
    stops = [(message, ears.frames / 50) for _ in range(10) for message in ears.next_of_bot()]
    assert [moment_of(message.data, at) for message, at in stops] == [pytest.approx(last)]


def test_a_stop_of_a_bot_is_not_believed_blindly():
    """A message may have any data."""
    wrong: list[Any] = [None, [], {}, {"ago": "1"}, {"ago": -1.0}, {"ago": 1e9}, {"ago": float("nan")}, {"ago": True}]
    for data in wrong:
        assert moment_of(data, 5.0) == 5.0
