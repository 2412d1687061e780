"""The objects of scenarios, as values."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

from rtvi_sync.testing.scenarios import Scenario

TEXT = """
name: a
user: {modality: audio, speech: {voice: x, api_key: hidden}}
judge: {eval: {model: m, extra: {token: hidden}}}
turns:
  - {user: hello, send_after: {delay_ms: 5}, expect: [{event: function_call, calls: [b]}]}
  - {user: [a, {pause_ms: 5}]}
"""


def test_equality(load: Callable[..., Sequence[Scenario]]) -> None:
    """Two scenarios are equal if they say the same, wherever it is in the file."""
    (scenario,) = load(TEXT)
    assert load(f"# a line\n{TEXT}")[0] == scenario
    assert load(TEXT.replace("5}]}", "6}]}"))[0] != scenario


def test_a_scenario_can_be_sent_to_another_process(load: Callable[..., Sequence[Scenario]]) -> None:
    """A scenario can be pickled."""
    (scenario,) = load(TEXT)
    assert pickle.loads(pickle.dumps(scenario)) == scenario


def test_no_secret_is_shown(load: Callable[..., Sequence[Scenario]]) -> None:
    """The repr of a scenario does not show the options of services."""
    (scenario,) = load(TEXT)
    assert "hidden" not in repr(scenario)
    assert "pause_ms=5" in repr(scenario)
