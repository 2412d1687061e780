"""Which scenario events each way to a bot (its door) reports, and which user actions it carries. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import attrs

from rtvi_sync.protocol.eval_messages import ReportLevel
from rtvi_sync.protocol.record import Record
from rtvi_sync.testing.scenarios.model import CALL_EVENTS, EventName, Expectation, Scenario, ScenarioTurn

#: A door's gap for an event: it never reports the event, or only if the bot sends it unasked.
Gap: TypeAlias = Literal["never", "perhaps"]

_VAD: Final = frozenset({"vad_user_started_speaking", "vad_user_stopped_speaking"})
#: The audible events of a telephone call.
_AUDIBLE: Final = frozenset(
    {
        "user_started_speaking",
        "user_stopped_speaking",
        "bot_started_speaking",
        "bot_stopped_speaking",
        "bot_interrupted",
        "response",
    }
)
_EVAL: Final = "use the eval route (--transport eval)"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Door(Record):
    """The way by which a bot is reached.

    Attributes:
        name: Name of the transport.
        is_eval: True for the eval route.
        carries_messages: False for a telephone call.
        shows_images: True if the eval route reports the bot's images in this session.
        hears: True if the bot's speech can be transcribed.
        tells_calls: False for a bot that is older than the messages about calls.
    """

    name: str
    is_eval: bool
    carries_messages: bool
    shows_images: bool
    hears: bool
    tells_calls: bool = True

    def obstacle(self, scenario: Scenario, *, has_tts: bool, has_next_line: bool) -> str | None:
        """Return why this door cannot run a scenario, with a remedy; None if it can."""
        if scenario.context and not self.is_eval:
            return f"'context' replaces the context of the bot's model, which only the eval route can: {_EVAL}"
        if scenario.simulation is not None and not has_next_line:
            return "the caller is simulated: pass a function that writes the next line (--next-line MODULE:FUNCTION)"
        speaks = scenario.user.modality == "audio"
        if not speaks and not self.carries_messages and (scenario.simulation or _types(scenario)):
            return f"a call by {self.name} carries no text: let the user speak ('user: {{modality: audio}}')"
        if speaks and not has_tts and (scenario.simulation or any(map(_needs_voice, scenario.turns))):
            return "the user speaks: pass a function that makes speech (--tts MODULE:FUNCTION), or record it ('audio')"
        if not self.is_eval and any(turn.image is not None for turn in scenario.turns):
            return f"'image' stands for the user's camera, which only the eval route can: {_EVAL}"
        return None

    def gap(self, event: EventName) -> tuple[Gap, str] | None:
        """Return the door's gap for an event, and how to close it; None if there is no gap."""
        if event == "response" and not self.hears:
            return "never", "it is what the bot is heard to say: pass a function that transcribes (--transcribe M:F)"
        if not self.carries_messages:
            return None if event in _AUDIBLE else ("never", f"a call by {self.name} does not tell {event}: {_EVAL}")
        if event in CALL_EVENTS and not self.tells_calls:
            return "never", f"a bot before RTVI 1.2 does not tell {event} as newer ones do: update Pipecat to 0.0.102"
        if event == "image" and not self.shows_images:
            if self.is_eval:
                return "never", "the client was connected without capture_bot_images: pass the URL in place of a client"
            return "never", f"only the eval route tells {event}: {_EVAL}"
        if not self.is_eval and (event in _VAD or event == "llm_marker"):
            return "perhaps", f"the bot does not send {event} unless it is asked to, over the eval route: {_EVAL}"
        return None


def _types(scenario: Scenario) -> bool:
    return any(turn.user is not None for turn in scenario.turns)


def _needs_voice(turn: ScenarioTurn) -> bool:
    return turn.user is not None and turn.audio is None


def expectations(scenario: Scenario) -> Iterator[Expectation]:
    """Yield the expectations of all turns."""
    for turn in scenario.turns:
        yield from turn.expect


def wants(scenario: Scenario, *events: EventName) -> bool:
    """Return whether a scenario names one of the events."""
    named = {expectation.event for expectation in expectations(scenario)}
    named |= {turn.send_after.event for turn in scenario.turns if turn.send_after and turn.send_after.event}
    return not named.isdisjoint(events)


def wants_vad(scenario: Scenario) -> bool:
    """Return whether a scenario names an event of the bot's voice detection."""
    return wants(scenario, "vad_user_started_speaking", "vad_user_stopped_speaking")


def level_for(scenario: Scenario) -> ReportLevel | None:
    """Return the lowest level at which the bot must report calls; None to keep the bot's level."""
    if scenario.simulation is not None:
        return "full"
    # A bot that reports no calls at all would not miss any.
    level: ReportLevel | None = "none" if wants(scenario, *CALL_EVENTS) else None
    for expectation in expectations(scenario):
        if expectation.event not in CALL_EVENTS:
            continue
        if expectation.eval is not None or any(call.args is not None for call in expectation.calls):
            return "full"
        if any(call.name is not None for call in expectation.calls):
            level = "name"
    return level
