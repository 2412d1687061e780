"""The turns of captured sessions with real bots: see tests/captures."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from rtvi_sync.conversation.record import TurnRecord
from tests.captures.expected import Expected, expected_of
from tests.captures.logs import LOGS, rows_of
from tests.captures.scenarios import SCENARIOS
from tests.conversation.replay import Replay

pytestmark = pytest.mark.inside

PATHS = sorted(LOGS.glob("*/*.jsonl"))
of_each_log = pytest.mark.parametrize("path", PATHS, ids=[f"{path.parent.name}-{path.stem}" for path in PATHS])


def told(turn: TurnRecord) -> Expected:
    return Expected(
        user=turn.user_text if turn.initiator == "user" else None,
        bot=turn.bot_text or "",
        status=turn.status,
        spoken=None if turn.spoken_text == turn.bot_text else turn.spoken_text,
        calls=tuple((call.function_name, call.arguments, call.result) for call in turn.function_calls),
        assumed=turn.assumed and turn.assumed.partition(" s for ")[2],
        errors=tuple(error.message for error in turn.errors),
    )


def test_each_scenario_was_captured() -> None:
    """Each scenario has a log of each version that it is for."""
    wanted = {(version, name) for name, scenario in SCENARIOS.items() for version in scenario.versions}
    assert wanted == {(path.parent.name, path.stem) for path in PATHS}


@of_each_log
def test_the_turns_of_a_session(path: Path) -> None:
    """A log has the turns that a listener would tell."""
    turns = Replay().play(rows_of(path))
    assert [attrs.asdict(told(turn)) for turn in turns] == [
        attrs.asdict(turn) for turn in expected_of(path.stem, path.parent.name)
    ]


@of_each_log
def test_a_session_after_another_one(path: Path) -> None:
    """A session has the same turns after any other session on the same tracker, even one that lost messages."""
    rows, replay = rows_of(path), Replay()
    replay.lose(rows, len(rows) // 3)
    replay.lose(rows, 2 * len(rows) // 3)
    for which in ("after losses", "after itself"):
        turns = replay.play(rows)
        assert [attrs.asdict(told(turn)) for turn in turns] == [
            attrs.asdict(turn) for turn in expected_of(path.stem, path.parent.name)
        ], which


@of_each_log
def test_a_kind_of_message_is_missing(path: Path) -> None:
    """No turn stays open for ever, whichever messages are missing."""
    rows = rows_of(path)
    kinds = sorted({what["type"] for _, kind, what in rows if kind in ("in", "out")})
    for kind in kinds:
        turns = Replay().play(rows, without={kind})
        assert [turn.number for turn in turns if turn.is_open] == [], f"without {kind}"
