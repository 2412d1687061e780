from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from rtvi_sync.testing.scenarios.doors import Door, level_for, wants_vad
from rtvi_sync.testing.scenarios.model import (
    EventName,
    Expectation,
    ExpectedCall,
    Scenario,
    ScenarioTurn,
    SendAfter,
    Simulation,
    UserSettings,
)

pytestmark = pytest.mark.inside

EVAL = Door(name="eval", is_eval=True, carries_messages=True, shows_images=True, hears=True)
SOCKET = Door(name="websocket", is_eval=False, carries_messages=True, shows_images=False, hears=True)
PHONE = Door(name="twilio", is_eval=False, carries_messages=False, shows_images=False, hears=True)
SPEAKS = UserSettings("audio", {"service": "kokoro"})


def scenario(*turns: ScenarioTurn, **fields: object) -> Scenario:
    return Scenario(name="s", full_name="f/s", path=Path("f.yaml"), turns=turns, **fields)  # type: ignore[arg-type]


def obstacle(door: Door, given: Scenario, *, tts: bool = False, next_line: bool = False) -> str | None:
    return door.obstacle(given, has_tts=tts, has_next_line=next_line)


@pytest.mark.parametrize("event", get_args(EventName))
def test_what_each_door_tells(event: EventName) -> None:
    """The eval route reports all events; others all but those on demand; a call only the audible ones."""
    assert EVAL.gap(event) is None
    on_demand = {"vad_user_started_speaking", "vad_user_stopped_speaking", "llm_marker"}
    gap = SOCKET.gap(event)
    assert (gap and gap[0]) == ("perhaps" if event in on_demand else "never" if event == "image" else None)
    heard = {"user_started_speaking", "user_stopped_speaking", "bot_started_speaking", "bot_stopped_speaking"}
    gap = PHONE.gap(event)
    assert (gap and gap[0]) == (None if event in heard | {"bot_interrupted", "response"} else "never")


def test_what_would_tell() -> None:
    """Each reason names the option that would help."""
    deaf = Door(name="eval", is_eval=True, carries_messages=True, shows_images=False, hears=False)
    for gap, told in (
        (deaf.gap("response"), "--transcribe"),
        (deaf.gap("image"), "capture_bot_images"),
        (SOCKET.gap("image"), "--transport eval"),
        (SOCKET.gap("llm_marker"), "--transport eval"),
        (PHONE.gap("llm_response"), "--transport eval"),
    ):
        assert gap is not None
        assert told in gap[1]


def test_what_cannot_be_run() -> None:
    """A missing requirement of a scenario is reported before a turn is said."""
    typed = scenario(ScenarioTurn(user="Hi"))
    seeded = scenario(ScenarioTurn(user="Hi"), context=[{"role": "system", "content": "x"}])
    shown = scenario(ScenarioTurn(user="Hi", image=Path("x.png")))
    spoken = scenario(ScenarioTurn(user="Hi"), user=SPEAKS)
    recorded = scenario(ScenarioTurn(user="Hi", audio=Path("x.wav")), user=SPEAKS)
    pressed = scenario(ScenarioTurn(dtmf="1"))
    simulated = scenario(simulation=Simulation(persona="p", goal="g", success="s"))
    for door, given, told in (
        (EVAL, typed, None),
        (EVAL, seeded, None),
        (EVAL, shown, None),
        (SOCKET, typed, None),
        (SOCKET, seeded, "--transport eval"),
        (SOCKET, shown, "--transport eval"),
        (PHONE, typed, "modality: audio"),
        (PHONE, pressed, None),
        (PHONE, recorded, None),
        (EVAL, spoken, "--tts"),
        (EVAL, simulated, "--next-line"),
    ):
        found = obstacle(door, given)
        assert found is None if told is None else told in (found or ""), (door, told)
    assert obstacle(EVAL, spoken, tts=True) is None
    assert obstacle(EVAL, simulated, next_line=True) is None
    assert "modality: audio" in (obstacle(PHONE, simulated, next_line=True) or "")


def test_the_least_level() -> None:
    """The bot is asked for no more of its calls than is checked."""

    def level(*expected: Expectation) -> object:
        return level_for(scenario(ScenarioTurn(user="Hi", expect=expected)))

    assert level(Expectation(event="llm_response", eval="x")) is None
    assert level(Expectation(event="function_call", calls=[ExpectedCall()])) == "none"
    assert level(Expectation(event="function_call_stopped", absent=True)) == "none"
    assert level_for(scenario(ScenarioTurn(user="Hi", send_after=SendAfter("function_call")))) == "none"
    named = Expectation(event="function_call", calls=[ExpectedCall("a")])
    assert level(named) == "name"
    assert level(named, Expectation(event="function_call", calls=[ExpectedCall("a", {})])) == "full"
    assert level(named, Expectation(event="function_call", calls=[ExpectedCall()], eval="x")) == "full"
    assert level_for(scenario(simulation=Simulation(persona="p", goal="g", success="s"))) == "full"


def test_voice_detection_is_asked_for() -> None:
    """An expectation or a send may name it."""
    assert wants_vad(scenario(ScenarioTurn(user="Hi", expect=[Expectation(event="vad_user_stopped_speaking")])))
    assert wants_vad(scenario(ScenarioTurn(user="Hi", send_after=SendAfter("vad_user_started_speaking"))))
    assert not wants_vad(scenario(ScenarioTurn(user="Hi", expect=[Expectation(event="llm_started")])))
