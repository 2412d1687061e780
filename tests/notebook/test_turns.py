"""The turns of a conversation, as bots of all generations tell them."""

from __future__ import annotations

import pytest

from rtvi_sync import Event
from rtvi_sync.notebook.turns import Turn, Turns

from .events import Script


def turns_of(*events: Event) -> tuple[Turn, ...]:
    """What events come to."""
    turns = Turns()
    for event in events:
        turns.take(event)
    return turns.snapshot()


def words(turns: tuple[Turn, ...]) -> list[tuple[int | None, str, str]]:
    """Number and words of each turn."""
    return [(turn.number, turn.user, turn.bot) for turn in turns]


def test_a_spoken_turn_and_its_moments() -> None:
    """Words of both, and when they began, ended and answered; the first answer counts, the last final transcript."""
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
    assert (turn.began, turn.heard_from, turn.final, turn.stopped) == (0.1, 0.2, 0.5, 0.6)
    assert (turn.text, turn.spoke) == (0.7, 0.9)
    assert turn.all_spoken
    assert turn.aloud


def test_a_pause_of_the_users_begins_no_turn() -> None:
    """Before the bot has reacted the user goes on with the same turn; after that he begins the next one."""
    script = Script()
    began, stopped = (lambda: script.event("USER_STARTED_SPEAKING")), (lambda: script.event("USER_STOPPED_SPEAKING"))
    turns = turns_of(
        began(), script.heard("Well,"), stopped(), began(), script.heard("hello."), stopped(), script.said("Hi."),
        began(), script.heard("Bye."),
    )  # fmt: skip
    assert words(turns) == [(1, "Well, hello.", "Hi."), (2, "Bye.", "")]


def test_a_bot_that_speaks_first_has_a_turn_without_a_number() -> None:
    """The user's turns are numbered from 1 all the same."""
    script = Script()
    turns = turns_of(script.said("Welcome!"), script.typed("Hello."), script.said("Hi."))
    assert words(turns) == [(None, "", "Welcome!"), (1, "Hello.", "Hi.")]
    assert turns[1].typed == turns[1].began == 0.2
    assert not turns[1].aloud


def test_late_words_belong_to_the_turn_that_goes_on() -> None:
    """A recogniser that is slower than the bot adds to the turn; interim words are replaced."""
    script = Script()
    (turn,) = turns_of(
        script.event("USER_STARTED_SPEAKING"),
        script.heard("What", final=False),
        script.said("One moment."),
        script.heard("What time", final=False),
    )
    assert (turn.user, turn.interim, turn.bot) == ("", "What time", "One moment.")


def test_bots_that_tell_no_beginnings_have_a_turn_for_each_transcript() -> None:
    """Where nothing else tells that the user began, his words do."""
    script = Script()
    turns = turns_of(script.heard("One."), script.said("Yes."), script.heard("Two."), script.said("Yes?"))
    assert words(turns) == [(1, "One.", "Yes."), (2, "Two.", "Yes?")]


def test_sessions_do_not_run_into_each_other() -> None:
    """What a bot says first in the next session is no answer to the last turn of the one before."""
    script, turns = Script(), Turns()
    turns.take(script.typed("Hello."))
    turns.end_session()
    turns.take(script.said("Welcome back!"))
    turns.take(script.typed("Thanks."))
    assert words(turns.snapshot()) == [(1, "Hello.", ""), (None, "", "Welcome back!"), (2, "Thanks.", "")]


@pytest.mark.parametrize("end", ["the next turn", "the session"])
def test_words_alone_are_shown_as_they_come_and_kept(end: str) -> None:
    """A bot that sends tokens only is quoted while it speaks, and afterwards not twice."""
    script, turns = Script(), Turns()
    for event in (script.typed("Hello."), script.token("Good"), script.token(" day")):
        turns.take(event)
    assert words(turns.snapshot()) == [(1, "Hello.", "Good day")]
    if end == "the session":
        turns.end_session()
    else:
        turns.take(script.typed("Bye."))
    assert turns.snapshot()[0].bot == "Good day"


def test_spoken_progress_is_exact_where_it_is_told() -> None:
    """Each segment's report counts, in any order, whatever spaces it has; spoken words are then not counted."""
    script = Script()
    said = [script.typed("?"), script.said("One two."), script.said("Three four.")]
    assert turns_of(*said)[0].spoken == "One two. Three four."
    said += [script.progress("", "Three four.", segment=2), script.word("One")]
    assert turns_of(*said)[0].spoken == ""
    said += [script.progress("One  two.", "", segment=1), script.progress("Three", " four.", segment=2)]
    assert turns_of(*said)[0].spoken == "One two. Three "


def test_spoken_words_are_progress_too() -> None:
    """Bots of protocol 1.x tell word by word."""
    script = Script()
    (turn,) = turns_of(script.typed("?"), script.said("One two three."), script.word("One"), script.word("two"))
    assert turn.spoken == "One two "


def test_what_was_interrupted_stays_unspoken() -> None:
    """A turn that ended in peace was spoken to its end, one that was interrupted was not."""
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
    assert new_turn[1].heard_from == end[0].received_at


def test_a_flood_is_kept_within_bounds() -> None:
    """Whatever a bot sends, a conversation has a hundred turns of bounded size."""
    script, turns = Script(), Turns()
    for _ in range(150):
        turns.take(script.typed("x" * 10_000))
        turns.take(script.said("y" * 10_000))
    for segment in range(3000):
        turns.take(script.said("z" * 2000))
        turns.take(script.progress("z", "", segment=segment))
        turns.take(script.event("BOT_INTERRUPTED"))
    kept = turns.snapshot()
    assert (len(kept), kept[0].number, kept[-1].number) == (100, 51, 150)
    assert all(len(turn.user) + len(turn.bot) < 25_000 for turn in kept)
    assert len(kept[-1]._segments) == len(turns.interruptions) == 1000


def test_what_a_server_sends_cannot_command_a_terminal() -> None:
    """Transcripts are printed too: no escape code and no line break of theirs survives."""
    script = Script()
    turns = turns_of(
        script.typed("\x1b[2Jyou"),
        script.said("\x9b31m\nbot\u202e"),
        script.typed("?"),
        script.heard("\x07a", final=False),
    )
    shown = "".join(turn.user + turn.bot + turn.interim for turn in turns)
    assert shown.isprintable()
