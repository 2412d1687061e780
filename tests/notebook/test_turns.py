"""The turns of a conversation, from the events of bots of all versions."""

from __future__ import annotations

import pytest

from rtvi_sync import Event
from rtvi_sync.notebook.turns import Turn, Turns

from .events import Script


def turns_of(*events: Event) -> tuple[Turn, ...]:
    """Return the turns of some events."""
    turns = Turns()
    for event in events:
        turns.update(event)
    return turns.snapshot()


def words(turns: tuple[Turn, ...]) -> list[tuple[int | None, str, str]]:
    """Return the number and the words of each turn."""
    return [(turn.number, turn.user, turn.bot) for turn in turns]


def test_a_spoken_turn_and_its_moments() -> None:
    """A turn has the words and times of both sides; the first answer and the last final transcript count."""
    script = Script()
    (turn,) = turns_of(
        script.event("USER_STARTED_SPEAKING"),
        script.event("BOT_INTERRUPTED"),
        script.heard("How", final=False),
        script.heard("How are"),
        script.heard("you?"),
        script.event("USER_STOPPED_SPEAKING"),
        script.token("Fine"),
        script.said("Fine."),
        script.event("BOT_STARTED_SPEAKING"),
        script.said("And you?"),
        script.event("BOT_STOPPED_SPEAKING"),
    )
    assert (turn.number, turn.user, turn.bot, turn.interim) == (1, "How are you?", "Fine. And you?", "")
    assert (turn.began, turn.bot_audio_from, turn.final, turn.stopped) == (0.1, 0.2, 0.5, 0.6)
    assert (turn.text, turn.spoke) == (0.7, 0.9)
    assert turn.all_spoken
    assert turn.by_voice


def test_a_pause_of_the_users_begins_no_turn() -> None:
    """Before the bot has answered, the user continues the same turn; after that, a new one begins."""
    script = Script()
    began, stopped = (lambda: script.event("USER_STARTED_SPEAKING")), (lambda: script.event("USER_STOPPED_SPEAKING"))
    turns = turns_of(
        began(), script.heard("Well,"), stopped(), began(), script.heard("hello."), stopped(), script.said("Hi."),
        began(), script.heard("Bye."),
    )  # fmt: skip
    assert words(turns) == [(1, "Well, hello.", "Hi."), (2, "Bye.", "")]


def test_a_bot_that_speaks_first_has_a_turn_without_a_number() -> None:
    """The user's turns are still numbered from 1."""
    script = Script()
    turns = turns_of(script.said("Welcome!"), script.typed("Hello."), script.said("Hi."))
    assert words(turns) == [(None, "", "Welcome!"), (1, "Hello.", "Hi.")]
    assert turns[1].typed == turns[1].began == 0.2
    assert not turns[1].by_voice


def test_late_words_belong_to_the_turn_that_goes_on() -> None:
    """A transcript that arrives after the bot's answer adds to the turn; interim words are replaced."""
    script = Script()
    (turn,) = turns_of(
        script.event("USER_STARTED_SPEAKING"),
        script.heard("What", final=False),
        script.said("One moment."),
        script.heard("What time", final=False),
    )
    assert (turn.user, turn.interim, turn.bot) == ("", "What time", "One moment.")


def test_bots_that_tell_no_beginnings_have_a_turn_for_each_transcript() -> None:
    """If no event reports the start of the user's speech, the transcript begins the turn."""
    script = Script()
    turns = turns_of(script.heard("One."), script.said("Yes."), script.heard("Two."), script.said("Yes?"))
    assert words(turns) == [(1, "One.", "Yes."), (2, "Two.", "Yes?")]


def test_sessions_do_not_run_into_each_other() -> None:
    """The bot's first words in a session are no answer to the last turn of the session before."""
    script, turns = Script(), Turns()
    turns.update(script.typed("Hello."))
    turns.end_session()
    turns.update(script.said("Welcome back!"))
    turns.update(script.typed("Thanks."))
    assert words(turns.snapshot()) == [(1, "Hello.", ""), (None, "", "Welcome back!"), (2, "Thanks.", "")]


@pytest.mark.parametrize("end", ["the next turn", "the session"])
def test_words_alone_are_shown_as_they_come_and_kept(end: str) -> None:
    """The words of a bot that sends only tokens are shown while it speaks, and not repeated later."""
    script, turns = Script(), Turns()
    for event in (script.typed("Hello."), script.token("Good"), script.token(" day")):
        turns.update(event)
    assert words(turns.snapshot()) == [(1, "Hello.", "Good day")]
    if end == "the session":
        turns.end_session()
    else:
        turns.update(script.typed("Bye."))
    assert turns.snapshot()[0].bot == "Good day"


def test_spoken_progress_is_exact_where_it_is_told() -> None:
    """Each segment's report counts, in any order, with any spaces; spoken words are then ignored."""
    script = Script()
    said = [script.typed("?"), script.said("One two."), script.said("Three four.")]
    assert turns_of(*said)[0].spoken == "One two. Three four."
    said += [script.progress("", "Three four.", segment=2), script.word("One")]
    assert turns_of(*said)[0].spoken == ""
    said += [script.progress("One  two.", "", segment=1), script.progress("Three", " four.", segment=2)]
    assert turns_of(*said)[0].spoken == "One two. Three "


def test_spoken_words_are_progress_too() -> None:
    """Bots of protocol 1.x report each word."""
    script = Script()
    (turn,) = turns_of(script.typed("?"), script.said("One two three."), script.word("One"), script.word("two"))
    assert turn.spoken == "One two "


def test_what_was_interrupted_stays_unspoken() -> None:
    """A turn without an interruption was spoken to its end, an interrupted one was not."""
    script = Script()
    begin = [
        script.typed("?"),
        script.said("One two."),
        script.event("BOT_STARTED_SPEAKING"),
        script.progress("One", " two."),
    ]
    end = script.event("BOT_INTERRUPTED"), script.event("BOT_STOPPED_SPEAKING")
    assert turns_of(*begin, end[1])[0].spoken == "One two."
    assert turns_of(*begin, *end)[0].spoken == "One "
    new_turn = turns_of(*begin, script.event("USER_STARTED_SPEAKING"), *end)
    assert [turn.spoken for turn in new_turn] == ["One ", ""]
    assert new_turn[1].bot_audio_from == end[0].received_at


def test_a_flood_is_kept_within_bounds() -> None:
    """Under any flood of events a conversation has at most 100 turns of bounded size."""
    script, turns = Script(), Turns()
    for _ in range(150):
        turns.update(script.typed("x" * 10_000))
        turns.update(script.said("y" * 10_000))
    for segment in range(3000):
        turns.update(script.said("z" * 2000))
        turns.update(script.progress("z", "", segment=segment))
        turns.update(script.event("BOT_INTERRUPTED"))
    kept = turns.snapshot()
    assert (len(kept), kept[0].number, kept[-1].number) == (100, 51, 150)
    assert all(len(turn.user) + len(turn.bot) < 25_000 for turn in kept)
    assert len(kept[-1]._segments) == len(turns.interruptions) == 1000


def test_what_a_server_sends_cannot_command_a_terminal() -> None:
    """Escape codes and line breaks are removed from transcripts, because they are also printed."""
    script = Script()
    turns = turns_of(
        script.typed("\x1b[2Jyou"),
        script.said("\x9b31m\nbot\u202e"),
        script.typed("?"),
        script.heard("\x07a", final=False),
    )
    shown = "".join(turn.user + turn.bot + turn.interim for turn in turns)
    assert shown.isprintable()
