"""A scenario as `files` reads it from a file: who says what, and what the bot must do then. Pure.

Times have the unit of their key in the file, with which their name ends: `within_ms` is in milliseconds,
`max_silence_s` in seconds. What the file leaves out has the format's default, or is None.
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
"""The options of a service, as the file has them: texts, numbers, booleans, None, and lists and dicts of these."""

#: The events that tell of a call of a function.
CALL_EVENTS: Final[frozenset[EventName]] = frozenset({"function_call", "function_call_stopped"})


class Place(NamedTuple):
    """A place in a file.

    Attributes:
        path: of the file, which may be an included one.
        line, column: from 1 on; 0: the whole file.
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
    """A call of a function that the bot must make.

    Attributes:
        name: of the function; None: any.
        args: arguments that the call must have, among others; None: any. Empty: any, of a bot that reports them.
    """

    name: str | None = None
    args: Mapping[str, Any] | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Expectation(Record):
    """An event that must come in a turn, or must not.

    Attributes:
        event: its type. Where the bot's modality is text, "response" has become "llm_response"; so "response" is
            the transcription of what the bot said.
        within_ms: milliseconds from the turn's send (1 to 3,600,000); None: the limit of the run.
        text_contains, text_excludes: a part of its text that must be there, or must not; not empty.
        calls: the calls that must be made, in any order; one without a name and arguments if the file names none.
            Empty for other events than calls, and for an absent one.
        eval: a criterion for the judge.
        marker, marker_first, markers, text_after: what an "llm_marker" must be: its meaning ("incomplete" is "short"
            or "long"); whether the first marker comes before all text; how many there are; whether text follows the
            first.
        absent: no event of this type may come.
        check_from: "turn_start" if also events since the turn's start count that no other expectation has used.
        at: where it begins.
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
    """When a turn's input is sent.

    Attributes:
        event: after the latest such event of the whole run; None: after the input of the turn before.
        delay_ms: milliseconds after that (0 to 3,600,000; more than 0 without an event).
    """

    event: EventName | None = None
    delay_ms: int = 0


@attrs.frozen(eq=False, repr=False)
class SpokenPause(Record):
    """Silence in what the user says, in milliseconds: 1 to 600,000, which all pauses of a turn have at most."""

    pause_ms: int


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ScenarioTurn(Record):
    """What the user does, and what must follow. At most one of `user` and `dtmf` is set; without both it observes.

    Attributes:
        user: what the user says; of a turn with pauses its texts, joined by a blank.
        parts: texts and pauses in their order; empty if there is no pause. Spoken turns only.
        audio: a recording of `user`, which is played instead. Spoken turns only.
        dtmf: the keys that the user presses, of 0-9, * and #.
        image: what the bot gets when it asks for the camera, until a later turn has another one.
        send_after: None: as soon as the bot is silent.
        expect: in their order.
        at: where it begins.
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
        modality: "audio": they are spoken.
        speech: the voice: service or factory, voice, model, language, speed, sample_rate, api_key. None: not given,
            which a script with recordings alone may do. Never shown, because it may have a secret.
    """

    modality: Modality = "text"
    speech: Options | None = attrs.field(default=None, repr=False)


@attrs.frozen(eq=False, repr=False)
class JudgeSettings(Record):
    """How the bot answers, and how that is judged.

    Attributes:
        modality: "audio": the bot speaks, and "response" is the transcription of that. "text": it need not.
        eval: the judge: service or factory, model, endpoint, extra, explainer, explain_below, allow_continue. Empty:
            the default of Pipecat, Ollama.
        transcription: service or factory, model, language, padding_secs. Never None if the modality is "audio".

    The options are never shown, because they may have a secret.
    """

    modality: Modality = "text"
    eval: Options = attrs.field(factory=dict, repr=False)
    transcription: Options | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SimulationMetric(Record):
    """What is judged or measured of a simulated conversation. Either `criterion` or `measure` is set.

    Attributes:
        name: in the results.
        criterion: what the judge decides of each of the bot's turns.
        min_score: the least share of them that must meet it, from 0 to 1; None: it is reported only.
        measure: "turns" of the user, "duration" in seconds, "words" of the longest answer, seconds of "latency" of the
            slowest one, or "function_calls".
        min_value, max_value: the range, ends included; one of them at least, except for calls.
        calls: exactly the calls that the bot must make; None except for "function_calls".
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
    """The caller of a simulated conversation, whom a language model plays.

    Attributes:
        persona, goal, success: who that is, what they want, and what the bot must have done at the end.
        simulator: the model: service or factory, model, endpoint, extra. Empty: the default of Pipecat, Ollama. Never
            shown, because it may have a secret.
        metrics: with different names.
        max_turns: of the user.
        max_duration_s, max_silence_s: in seconds: of the conversation, and while nothing happens in it.
        runs: how often it is run; each must pass.
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
    """One conversation with a bot, and what it must do: scripted, or simulated by a persona.

    Attributes:
        name: its own.
        full_name: "FILE/SCENARIO", by the names in the file; `name` if the file is one scenario.
        path: of the file that was loaded.
        turns: of a scripted one, which may be empty.
        simulation: of a simulated one; None if it is scripted.
        context: messages that replace the bot's context before the first turn; empty: it stays.
        stop_on_failure: whether the first failed turn is the last.
        user, judge: the sides of the conversation.
        trigger_disconnect: deprecated by Pipecat.
        at: where it begins.
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
        """Return which of both it is, as Pipecat's results name it."""
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
        """Run the scenario against a bot, and return what has become of it. Blocks; not to be called in a handler.

        That no bot is reached is a failure in the result, and so is what a function raises. Functions are called on
        the calling thread.

        Args:
            bot: the bot's URL, as `RTVIClient.for_url()` takes it; or a client that is connected, whose session stays
                open. What that session was not begun for is "unsupported", and so are several runs, and a client that
                was made with ``track_turns=False``.
            transport: as of `RTVIClient.for_url()`: "eval" for all that the format has.
            judge: ``judge(question, answer, criterion)`` returns whether what the bot has said meets the criterion:
                True, False or "continue" (it has not said all), alone or in a pair with its reason. A call of a
                function is the answer ``name(json)``. `ChatJudge` is one. None: criteria are "not_judged".
            tts: ``tts(text)`` returns the speech of a user who speaks: 16-bit mono PCM with its sample rate, or the
                bytes of a WAV file.
            transcribe: ``transcribe(pcm, sample_rate_hz)`` returns the words in the bot's speech, 16-bit mono PCM; for
                the event "response" of a bot that speaks.
            next_line: ``next_line(turns)``, or ``next_line(turns, simulation)``, plays a simulated caller, as in
                `simulate()`.
            timeout: seconds for an expectation without `within_ms`.
            connect_timeout: seconds until the bot is ready.
            token, headers: as of `RTVIClient.for_url()`.
            record: path of a recording of the session, as of `RTVIClient.record()`, with the report page if the
                scenario does not pass.

        Raises:
            TypeError, ValueError: an argument cannot be used.
            BotNotReadyError: the client has no session with a ready bot.
            InvalidTransportParamsError: the URL cannot be a bot's, or not by this transport.
            MissingExtraError: the transport needs a library that is not installed.
        """
        from rtvi_sync.testing.scenarios import run_scenario  # which imports this module

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
