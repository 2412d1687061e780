"""A scenario as `files` reads it: the user's words, and the bot's expected behaviour. Pure.

Times have the unit of their key in the file, which is in their names: `within_ms` is in milliseconds, `max_silence_s`
in seconds. An attribute without a key in the file has the format's default, or is None.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from rtvi_sync.protocol.record import Record

if TYPE_CHECKING:
    from rtvi_sync.client.candidates import TransportName
    from rtvi_sync.client.client import RTVIClient
    from rtvi_sync.testing.scenarios.report import ScenarioResult

EventName: TypeAlias = Literal[
    "user_started_speaking",
    "user_stopped_speaking",
    "vad_user_started_speaking",
    "vad_user_stopped_speaking",
    "user_transcription",
    "bot_started_speaking",
    "bot_stopped_speaking",
    "bot_interrupted",
    "llm_started",
    "response",
    "llm_response",
    "tts_response",
    "llm_marker",
    "function_call",
    "function_call_stopped",
    "image",
    "bot_backchannel",
    "user_backchannel",
]
Modality: TypeAlias = Literal["text", "audio"]
MarkerKind: TypeAlias = Literal["complete", "short", "long", "incomplete"]
Measure: TypeAlias = Literal["turns", "duration", "words", "latency", "function_calls"]
Options: TypeAlias = Mapping[str, Any]
"""The options of a service, as in the file: texts, numbers, booleans, None, and lists and dicts of these."""

#: The events about function calls.
CALL_EVENTS: Final[frozenset[EventName]] = frozenset({"function_call", "function_call_stopped"})


class Place(NamedTuple):
    """A place in a file.

    Attributes:
        path: Path of the file, which may be an included one.
        line, column: Position, counted from 1; 0 for the whole file.
    """

    path: Path
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """Return "FILE:LINE", or "FILE"."""
        return f"{self.path}:{self.line}" if self.line else str(self.path)


_AT: Final = Place(Path())


@attrs.frozen(eq=False, repr=False)
class ExpectedCall(Record):
    """A function call that the bot must make.

    Attributes:
        name: Name of the function; None for any.
        args: Arguments that the call must have, perhaps among others; None for any. An empty mapping also accepts any,
            but only from a bot that reports arguments.
    """

    name: str | None = None
    args: Mapping[str, Any] | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Expectation(Record):
    """An event that must occur in a turn, or must not.

    Attributes:
        event: Type of the event. "response" is a transcription of the bot's speech: if the bot's modality is text, it
            is replaced by "llm_response".
        within_ms: Milliseconds from the turn's send (1 to 3,600,000); None for the limit of the run.
        text_contains, text_excludes: Non-empty part that its text must have, or must not have.
        calls: Required calls in any order; one without a name and arguments if the file names none. Empty for other
            events than calls, and for an absent one.
        eval: Criterion for the judge.
        marker, marker_first, markers, text_after: Conditions on an "llm_marker": its meaning ("incomplete" is "short"
            or "long"); whether the first marker precedes all text; the number of markers; whether text follows the
            first.
        absent: True if no event of this type may occur.
        check_from: "turn_start" to include events since the turn's start that no other expectation has used.
        at: Place in the file.
    """

    event: EventName
    within_ms: int | None = None
    text_contains: str | None = None
    text_excludes: str | None = None
    calls: Sequence[ExpectedCall] = ()
    eval: str | None = None
    marker: MarkerKind | None = None
    marker_first: bool | None = None
    markers: int | None = None
    text_after: bool | None = None
    absent: bool = False
    check_from: Literal["previous", "turn_start"] = "previous"
    at: Place = attrs.field(default=_AT, eq=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class SendAfter(Record):
    """The time at which a turn's input is sent.

    Attributes:
        event: Send after the latest such event of the whole run; None to send after the input of the turn before.
        delay_ms: Additional milliseconds (0 to 3,600,000; more than 0 without an event).
    """

    event: EventName | None = None
    delay_ms: int = 0


@attrs.frozen(eq=False, repr=False)
class SpokenPause(Record):
    """Silence in the user's speech, in milliseconds, from 1 to 600,000. The limit applies to all pauses of a turn."""

    pause_ms: int


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ScenarioTurn(Record):
    """The user's action, and the expectations that follow. At most one of `user` and `dtmf` is set; without both, the
    turn only observes.

    Attributes:
        user: Words of the user; in a turn with pauses, its texts joined by a blank.
        parts: Texts and pauses in order; empty without pauses. Only in spoken turns.
        audio: Recording of `user`, played instead of synthesized speech. Only in spoken turns.
        dtmf: Keys that the user presses, of 0-9, * and #.
        image: Image for the bot's requests to the camera, until a later turn sets another.
        send_after: Time of the send; None to send as soon as the bot is silent.
        expect: Expectations in order.
        at: Place in the file.
    """

    user: str | None = None
    parts: Sequence[str | SpokenPause] = ()
    audio: Path | None = None
    dtmf: str | None = None
    image: Path | None = None
    send_after: SendAfter | None = None
    expect: Sequence[Expectation] = ()
    at: Place = attrs.field(default=_AT, eq=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class UserSettings(Record):
    """How the user's words reach the bot.

    Attributes:
        modality: "audio" if they are spoken.
        speech: Options of the voice: service or factory, voice, model, language, speed, sample_rate, api_key. None if
            not given, which suits a script with recordings only. Never shown, because it may have a secret.
    """

    modality: Modality = "text"
    speech: Options | None = attrs.field(default=None, repr=False)


@attrs.frozen(eq=False, repr=False)
class JudgeSettings(Record):
    """How the bot answers, and how the answers are judged.

    Attributes:
        modality: "audio" if the bot speaks, and "response" is a transcription of its speech; "text" if it may be
            silent.
        eval: Options of the judge: service or factory, model, endpoint, extra, explainer, explain_below,
            allow_continue. Empty for Pipecat's default, Ollama.
        transcription: Options: service or factory, model, language, padding_secs. Never None if the modality is
            "audio".

    The options are never shown, because they may have a secret.
    """

    modality: Modality = "text"
    eval: Options = attrs.field(factory=dict, repr=False)
    transcription: Options | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SimulationMetric(Record):
    """A judged or measured value of a simulated conversation. Either `criterion` or `measure` is set.

    Attributes:
        name: Name in the results.
        criterion: Criterion that the judge applies to each of the bot's turns.
        min_score: Lowest share of turns that must meet it, from 0 to 1; None to only report it.
        measure: "turns" of the user, "duration" in seconds, "words" of the longest answer, "latency" of the slowest
            answer in seconds, or "function_calls".
        min_value, max_value: Range, ends included; at least one of them, except for calls.
        calls: Exactly the calls that the bot must make; None except for "function_calls".
    """

    name: str
    criterion: str | None = None
    min_score: float | None = None
    measure: Measure | None = None
    min_value: float | None = None
    max_value: float | None = None
    calls: Sequence[ExpectedCall] | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Simulation(Record):
    """The caller of a simulated conversation, played by a language model.

    Attributes:
        persona, goal, success: Description of the caller, their goal, and the outcome that counts as success.
        simulator: Options of the model: service or factory, model, endpoint, extra. Empty for Pipecat's default,
            Ollama. Never shown, because it may have a secret.
        metrics: Metrics with different names.
        max_turns: Limit on the turns of the user.
        max_duration_s, max_silence_s: Limits in seconds on the conversation, and on a time without any event.
        runs: Number of runs; each must pass.
    """

    persona: str
    goal: str
    success: str
    simulator: Options = attrs.field(factory=dict, repr=False)
    metrics: Sequence[SimulationMetric] = ()
    max_turns: int = 20
    max_duration_s: float = 300.0
    max_silence_s: float = 30.0
    runs: int = 1


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Scenario(Record):
    """One conversation with a bot and its expectations: scripted, or simulated by a persona. Made by `load()`.

    Attributes:
        name: Its own name.
        full_name: "FILE/SCENARIO", by the names in the file; `name` if the file is one scenario.
        path: Path of the loaded file.
        turns: Turns of a scripted scenario; may be empty.
        simulation: Simulation of a simulated scenario; None if it is scripted.
        context: Messages that replace the bot's context before the first turn; empty to keep it.
        stop_on_failure: True to stop after the first failed turn.
        user, judge: Settings of the two sides.
        trigger_disconnect: Deprecated by Pipecat.
        at: Place in the file.
    """

    name: str
    full_name: str
    path: Path
    turns: Sequence[ScenarioTurn] = ()
    simulation: Simulation | None = None
    context: Sequence[Mapping[str, Any]] = ()
    stop_on_failure: bool = True
    user: UserSettings = attrs.field(factory=UserSettings)
    judge: JudgeSettings = attrs.field(factory=JudgeSettings)
    trigger_disconnect: bool = False
    at: Place = attrs.field(default=_AT, eq=False, repr=False)

    @property
    def kind(self) -> Literal["script", "simulation"]:
        """Kind of the scenario, named like in Pipecat's results."""
        return "script" if self.simulation is None else "simulation"

    def run(
        self,
        bot: str | RTVIClient,
        *,
        transport: TransportName = "auto",
        judge: Callable[[str, str, str], Any] | None = None,
        tts: Callable[[str], Any] | None = None,
        transcribe: Callable[[bytes, int], str] | None = None,
        next_line: Callable[..., Any] | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 15.0,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        record: str | os.PathLike[str] | None = None,
    ) -> ScenarioResult:
        """Run the scenario against a bot, and return the result. Blocks; must not be called in a handler.

        If the bot cannot be reached, or a function raises, the result has a failure. Functions are called on the
        calling thread.

        Args:
            bot: URL of the bot, as `RTVIClient.for_url()` takes it; or a connected client, whose session stays open.
                With a client, features that its session was not started with are "unsupported", as are several runs,
                and clients created with ``track_turns=False``.
            transport: Transport, as in `RTVIClient.for_url()`. Only "eval" supports the whole format.
            judge: ``judge(question, answer, criterion)`` returns whether the bot's answer meets the criterion: True,
                False or "continue" (the answer is incomplete), also as a pair with the reason. For a function call, the
                answer is ``name(json)``. A `ChatJudge` fits. None makes criteria "not_judged".
            tts: ``tts(text)`` returns the speech of a speaking user: 16-bit mono PCM with its sample rate, or the bytes
                of a WAV file.
            transcribe: ``transcribe(pcm, sample_rate_hz)`` returns the words in the bot's speech, 16-bit mono PCM, for
                the event "response" of a speaking bot.
            next_line: ``next_line(turns)``, or ``next_line(turns, simulation)``, plays a simulated caller, as in
                `simulate()`.
            timeout (seconds): Limit of an expectation without `within_ms`.
            connect_timeout (seconds): Limit of the wait for a ready bot. A bot that doesn't listen yet is waited for,
                up to 5 s.
            token, headers: See `RTVIClient.for_url()`.
            record: Path of a recording of the session, as in `RTVIClient.record()`, with the report page if the
                scenario doesn't pass.

        Raises:
            TypeError, ValueError: An argument is invalid.
            BotNotReadyError: The client has no session with a ready bot.
            InvalidTransportParamsError: The URL cannot be a bot's, or not by this transport.
            MissingExtraError: The transport needs a library that is not installed.
        """
        from rtvi_sync.testing.scenarios import run_scenario  # here, because it imports this module

        options = {
            "transport": transport,
            "timeout": timeout,
            "connect_timeout": connect_timeout,
            "token": token,
            "headers": headers,
            "record": record,
        }
        hooks = {"judge": judge, "tts": tts, "transcribe": transcribe, "next_line": next_line}
        return run_scenario(self, bot, hooks, options)
