"""Reads scenario files strictly: every key, word and value is checked, and an error names its place.

The format is the one of Pipecat's `pipecat eval`. Pipecat's own reader ignores unknown keys, so a misspelt key would be
a check that never runs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import attrs

from rtvi_sync.errors import ScenarioFileError
from rtvi_sync.protocol.text import quoted
from rtvi_sync.protocol.validation import COUNT_OR_ZERO, NUMBER, PATH, Rule, integer, number
from rtvi_sync.testing.scenarios.keys import Keys, check, items_of, words
from rtvi_sync.testing.scenarios.media import MAX_FAULTS
from rtvi_sync.testing.scenarios.model import (
    CALL_EVENTS,
    EventName,
    Expectation,
    ExpectedCall,
    JudgeSettings,
    MarkerKind,
    Measure,
    Modality,
    Options,
    Place,
    Scenario,
    ScenarioTurn,
    SendAfter,
    Simulation,
    SimulationMetric,
    SpokenPause,
    UserSettings,
)
from rtvi_sync.testing.scenarios.nodes import TOO_MANY, Budget, Node, read

T = TypeVar("T")

#: Limits on the scenarios that are read together, and on the turns of a scenario.
MAX_SCENARIOS: Final = 1_000
MAX_TURNS: Final = 1_000
#: Limit on a time in a file: 1 h.
MAX_MS: Final = 3_600_000
#: Limit on the pauses in a turn: 10 min.
MAX_PAUSES_MS: Final = 600_000

_SUFFIXES: Final = (".yaml", ".yml")

_SCRIPT_KEYS: Final = ("turns", "context", "stop_on_failure")
_SIMULATION_KEYS: Final = (
    *("persona", "goal", "success", "simulator", "metrics", "max_turns", "max_duration_s", "max_silence_s", "runs"),
)
_SCENARIO_KEYS: Final = ("name", "user", "judge", "trigger_disconnect", *_SCRIPT_KEYS, *_SIMULATION_KEYS)
_TURN_KEYS: Final = ("user", "dtmf", "audio", "image", "send_after", "expect")
_CONTENT_KEYS: Final = ("text_contains", "text_excludes", "eval")
_CALL_KEYS: Final = ("calls", "name", "args")
_MARKER_KEYS: Final = ("marker", "marker_first", "markers", "text_after")
_EXPECTATION_KEYS: Final = (
    *("event", "within_ms", *_CONTENT_KEYS, *_CALL_KEYS, *_MARKER_KEYS, "absent", "check_from"),
)
_METRIC_KEYS: Final = ("name", "criterion", "min_score", "measure", "min_value", "max_value", "calls")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_TEXT: Final = Rule("text that is not blank", _is_text, lambda value: bool(value.strip()))
_NAME: Final = Rule(
    "text of one line, without control characters", _is_text, lambda value: bool(value.strip()) and value.isprintable()
)
_PART: Final = Rule("text that is not empty", _is_text, bool)
_SAID: Final = Rule(f"{_TEXT.what}, or a list of such and of pauses", _TEXT.has_type, _TEXT.has_value)
_SAID_PART: Final = Rule(f"{_TEXT.what}, or 'pause_ms: N'", _TEXT.has_type, _TEXT.has_value)
_CALL: Final = Rule("the name of a function, or a mapping with 'name' and 'args'", _TEXT.has_type, _TEXT.has_value)
_FLAG: Final = Rule("true or false", lambda value: isinstance(value, bool))
_FILE: Final = Rule("the path of a file", _is_text, lambda value: bool(value) and "\0" not in value)
_KEYPAD: Final = Rule(
    "1 to 1000 keys of 0-9, * and #",
    lambda value: isinstance(value, str | int) and not isinstance(value, bool),
    lambda value: 0 < len(str(value)) <= 1000 and set(str(value)) <= set("0123456789*#"),
)
_FACTORY: Final = Rule("a dotted path, as module.function", _is_text, lambda value: "." in value.strip("."))
_MILLISECONDS: Final = integer(1, MAX_MS)
_SECONDS: Final = Rule(
    f"a number of seconds, more than 0 and at most {MAX_MS // 1000}",
    NUMBER.has_type,
    lambda value: 0 < value <= MAX_MS / 1000,
)
_TIMES: Final = integer(1, 1000)
_MODALITY: Final = words(*get_args(Modality))
_EVENT: Final = words(*get_args(EventName))
_MARKER: Final = words(*get_args(MarkerKind))
_MEASURE: Final = words(*get_args(Measure))
_CHECK_FROM: Final = words("previous", "turn_start")

# The rules of a service's options, by key; None for a mapping of any content.
_Rules = Mapping[str, "Rule | None"]
_MODEL: Final[_Rules] = {
    "service": words("ollama", "openai", any_case=True),
    "factory": _FACTORY,
    "model": _TEXT,
    "endpoint": _TEXT,
    "extra": None,
}
_EVAL: Final[_Rules] = {
    **_MODEL,
    "explainer": Rule("a mapping or false", lambda value: value is False or isinstance(value, dict)),
    "explain_below": number(0, 100),
    "allow_continue": _FLAG,
}
_SPEECH: Final[_Rules] = {
    "service": words("kokoro", "cartesia", any_case=True),
    "factory": _FACTORY,
    "voice": _TEXT,
    "model": _TEXT,
    "language": _TEXT,
    "speed": number(0.1, 10),
    "sample_rate": integer(8_000, 192_000),
    "api_key": _TEXT,
}
_TRANSCRIPTION: Final[_Rules] = {
    "service": words("moonshine", "whisper", any_case=True),
    "factory": _FACTORY,
    "model": _TEXT,
    "language": _TEXT,
    "padding_secs": number(0, MAX_MS / 1000),
    "device": _TEXT,
    "compute_type": _TEXT,
}
# Keys that Pipecat reads beside a factory. A factory itself takes any key.
_BESIDE_FACTORY: Final = ("factory", "explainer", "explain_below", "allow_continue")


def load(path: str | os.PathLike[str]) -> Sequence[Scenario]:
    """Read a scenario file, or all scenario files of a folder.

    Blocks until the files are read: at most 1 MiB each, and 8 MiB together with their includes. Recordings and images
    are not read.

    Args:
        path: Path of a file or folder. Of a folder, all files that end in .yaml or .yml and have a `name` are read, in
            the order of their file names. Subfolders are skipped.

    Returns:
        The scenarios in the order of the files; a file with `scenarios` has several.

    Raises:
        ScenarioFileError: A file cannot be read, or has faults. The error lists all faults.
    """
    PATH.check(path=path)
    top = Path(path)
    reading = _Reading()
    if top.is_dir():
        reading.folder(top)
    else:
        reading.file(top)
    if reading.faults:
        first, *others = ((fault.path, fault.line, fault.column, fault.text) for fault in reading.faults)
        raise ScenarioFileError(*first, others=others)
    return tuple(reading.scenarios)


@attrs.define
class _Reading:
    """Files that are read together, and their faults."""

    scenarios: list[Scenario] = attrs.field(factory=list)
    faults: list[ScenarioFileError] = attrs.field(factory=list)
    budget: Budget = attrs.field(factory=Budget)
    names: dict[str, Place] = attrs.field(factory=dict)  # the place of each scenario's full name

    @property
    def is_full(self) -> bool:
        """True if no more faults are noted."""
        return len(self.faults) >= MAX_FAULTS

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Note a fault that the block raises, and continue after the block. Each fault is noted once."""
        try:
            yield
        except ScenarioFileError as fault:
            if not self.is_full and all(fault.args != other.args for other in self.faults):
                self.faults.append(fault.with_traceback(None))  # a traceback would keep all nodes alive

    def each(self, nodes: Sequence[Node], function: Callable[[Node], T]) -> tuple[T, ...]:
        """Return the results of a function for the nodes, without the nodes that have a fault."""
        found = []
        for node in nodes:
            if self.is_full:
                break
            with self.noting():
                found.append(function(node))
        return tuple(found)

    def folder(self, folder: Path) -> None:
        """Read the scenario files of a folder."""
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIXES))
        except OSError as error:
            self.faults.append(ScenarioFileError(folder, 0, 0, f"cannot be read: {error.strerror}"))
            return
        for name in names:
            if (file := folder / name).is_file() and not self.is_full:
                self.file(file, is_listed=True)
        if not self.scenarios and not self.faults:
            text = "no scenario file in this folder itself: none that ends in .yaml or .yml and has a name"
            self.faults.append(ScenarioFileError(folder, 0, 0, text))

    def file(self, path: Path, *, is_listed: bool = False) -> None:
        """Read the scenarios of a file. A file that a folder lists is skipped if it has no name."""
        before = len(self.faults)
        with self.noting():
            self._file(path, is_listed=is_listed)
        # In the order of the lines; faults of included files follow.
        self.faults[before:] = sorted(
            self.faults[before:], key=lambda fault: (fault.path != path, fault.line, fault.column)
        )

    def _file(self, path: Path, *, is_listed: bool) -> None:
        root = read(path, self.budget)
        has_name = isinstance(root.value, dict) and "name" in root.value
        if is_listed and not has_name:
            return
        if isinstance(root.value, dict) and "suite" in root.value and not has_name:
            raise root.fault("a manifest of `pipecat eval suite`, which starts bots; give its scenario files instead")
        top = Keys.of(root, "a scenario file", (*_SCENARIO_KEYS, "scenarios"))
        name = top.needed("name", _NAME)
        entries = top.items("scenarios")
        if entries is None:
            self.scenarios.append(_scenario(self, path, top, top, name, name))
            return
        if not entries:
            raise top.node_needed("scenarios").fault("'scenarios' must have one scenario at least")
        defaults = {key: pair for key, pair in top.pairs.items() if key not in ("scenarios", "name")}
        self.scenarios += self.each(entries, lambda entry: self._entry(path, name, defaults, entry))

    def _entry(self, path: Path, file_name: str, defaults: Mapping[str, tuple[Node, Node]], entry: Node) -> Scenario:
        """Read one item of `scenarios`. The file's own keys are its defaults."""
        own = Keys.of(entry, "a scenario", _SCENARIO_KEYS)
        name = own.needed("name", _NAME)
        inherited = [node for key, (_, node) in defaults.items() if key not in own]
        if not self.budget.takes(sum(node.size for node in inherited)):  # they are read again, like an alias
            raise entry.fault(TOO_MANY)
        keys = attrs.evolve(own, pairs={**defaults, **own.pairs})
        return _scenario(self, path, keys, own, name, f"{file_name}/{name}")


def _scenario(reading: _Reading, path: Path, keys: Keys, own: Keys, name: str, full_name: str) -> Scenario:
    """Read a scenario.

    Args:
        reading: Notes its faults.
        path: Path of its file.
        keys: Its keys, with the file's keys as defaults.
        own: Its own keys.
        name: Its own name.
        full_name: Its name with the file's name.
    """
    if len(reading.names) >= MAX_SCENARIOS:
        raise own.node.fault(f"more than {MAX_SCENARIOS} scenarios")
    place = own.node_needed("name").place
    if (first := reading.names.setdefault(full_name, place)) is not place:
        with reading.noting():
            raise own.node_needed("name").fault(f"the scenario {quoted(full_name)} is there twice, first at {first}")
    is_simulated = "persona" in keys
    if is_simulated == ("turns" in keys):
        both = "not both" if is_simulated else "and this one has neither"
        raise own.node.fault(f"a scenario has 'turns' if it is scripted, or 'persona' if it is simulated; {both}")
    user: UserSettings | None = None
    judge: JudgeSettings | None = None
    with reading.noting():
        user = _user(keys)
    with reading.noting():
        judge = _judge(keys)
    scenario = Scenario(
        name=name,
        full_name=full_name,
        path=path,
        user=user or UserSettings(),
        judge=judge or JudgeSettings(),
        trigger_disconnect=keys.read("trigger_disconnect", _FLAG, False),
        at=own.node.place,
    )
    if is_simulated:
        own.refuse(_SCRIPT_KEYS, "is for scripted scenarios, which have 'turns'")
        return attrs.evolve(scenario, simulation=_simulation(reading, keys, user))
    own.refuse(_SIMULATION_KEYS, "is for simulated scenarios, which have a 'persona'")
    return attrs.evolve(
        scenario,
        turns=_TurnReader(reading, path.parent, user, judge).turns(keys),
        context=tuple(_plain(each, "a message of 'context'") for each in keys.items("context") or ()),
        stop_on_failure=keys.read("stop_on_failure", _FLAG, True),
    )


def _plain(node: Node, what: str) -> dict[str, Any]:
    """Return a mapping of any content."""
    plain: dict[str, Any] = Keys.of(node, what, None).node.plain()
    return plain


# -- settings ---------------------------------------------------------------------------------------------------------


def _user(keys: Keys) -> UserSettings:
    node = keys.value_of("user")
    if node is None:
        return UserSettings()
    user = Keys.of(node, "'user'", ("modality", "speech"))
    return UserSettings(user.read("modality", _MODALITY, "text"), _options(user, "speech", _SPEECH))


def _judge(keys: Keys) -> JudgeSettings:
    node = keys.value_of("judge")
    if node is None:
        return JudgeSettings()
    judge = Keys.of(node, "'judge'", ("modality", "eval", "transcription"))
    modality = judge.read("modality", _MODALITY, "text")
    transcription = _options(judge, "transcription", _TRANSCRIPTION)
    if modality == "audio" and transcription is None:
        raise node.fault("'judge' needs the key 'transcription', because its modality is audio")
    return JudgeSettings(modality, _options(judge, "eval", _EVAL) or {}, transcription)


def _options(keys: Keys, key: str, rules: _Rules) -> Options | None:
    """Return the options of a service or its factory; None if there is no value."""
    node = keys.value_of(key)
    if node is None:
        return None
    has_factory = Keys.of(node, repr(key), None).value_of("factory") is not None
    options = Keys.of(node, repr(key), None if has_factory else rules)
    for name, rule in rules.items():
        if has_factory and name not in _BESIDE_FACTORY:
            continue
        if rule is not None:
            options.read(name, rule)
        elif (value := options.value_of(name)) is not None:
            Keys.of(value, repr(name), None)
    explainer = options.value_of("explainer") if "explainer" in rules else None
    if explainer is not None and isinstance(explainer.value, dict):
        _options(options, "explainer", _MODEL)
    plain: Options = node.plain()
    return plain


# -- scripted ---------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _TurnReader:
    """The turns of a scenario.

    Attributes:
        reading: Notes their faults.
        folder: Folder for relative paths of recordings and images.
        user, judge: Settings of the scenario; None if they have a fault, so nothing is checked against them.
    """

    reading: _Reading
    folder: Path
    user: UserSettings | None
    judge: JudgeSettings | None

    def turns(self, keys: Keys) -> tuple[ScenarioTurn, ...]:
        """Read the turns."""
        nodes = items_of(keys.node_needed("turns"), "turns")
        if len(nodes) > MAX_TURNS:
            raise nodes[MAX_TURNS].fault(f"more than {MAX_TURNS} turns")
        return self.reading.each(nodes, self._turn)

    def _turn(self, node: Node) -> ScenarioTurn:
        keys = Keys.of(node, "a turn", _TURN_KEYS)
        expect = items_of(keys.pairs["expect"][1], "expect") if "expect" in keys else ()
        expectations = self.reading.each(expect, self._expectation)
        said = keys.value_of("user")
        user, parts = (None, ()) if said is None else self._said(said)
        dtmf = keys.read("dtmf", _KEYPAD)
        audio = self._path(keys, "audio")
        if user is not None and dtmf is not None:
            raise keys.pairs["dtmf"][0].fault("a turn has 'user' or 'dtmf', not both")
        if audio is not None:
            self._check_recording(keys, user, parts)
        elif said is not None and self.user is not None and self.user.modality == "audio" and self.user.speech is None:
            raise said.fault("a spoken turn needs 'speech' in the scenario's 'user', or a recording in 'audio'")
        if "send_after" in keys and user is None and dtmf is None:
            raise keys.pairs["send_after"][0].fault("'send_after' needs something to send: 'user' or 'dtmf'")
        return ScenarioTurn(
            user=user,
            parts=parts,
            audio=audio,
            dtmf=None if dtmf is None else str(dtmf),
            image=self._path(keys, "image"),
            send_after=_send_after(keys.pairs["send_after"][1]) if "send_after" in keys else None,
            expect=expectations,
            at=node.place,
        )

    def _said(self, node: Node) -> tuple[str, tuple[str | SpokenPause, ...]]:
        """Return the user's words, and their parts if they have pauses."""
        if not isinstance(node.value, list):
            check(node, "user", _SAID)
            return str(node.value), ()
        parts = tuple(map(_part, node.value))
        if not (texts := [part for part in parts if isinstance(part, str)]):
            raise node.fault("'user' has no text")
        if sum(part.pause_ms for part in parts if isinstance(part, SpokenPause)) > MAX_PAUSES_MS:
            raise node.fault(f"the pauses of a turn are more than {MAX_PAUSES_MS} ms together")
        self._check_spoken(node, "a list, with pauses,")
        return " ".join(texts), parts

    def _check_recording(self, keys: Keys, user: str | None, parts: Sequence[object]) -> None:
        key = keys.pairs["audio"][0]
        if user is None:
            raise key.fault("'audio' needs 'user', the words of the recording")
        if parts:
            raise key.fault("'audio' has its own pauses; let 'user' be text")
        self._check_spoken(key, "'audio'")

    def _check_spoken(self, node: Node, what: str) -> None:
        if self.user is not None and self.user.modality != "audio":
            raise node.fault(f"{what} is for spoken turns: set 'modality: audio' in the scenario's 'user'")

    def _path(self, keys: Keys, key: str) -> Path | None:
        name = keys.read(key, _FILE)
        return None if name is None else (self.folder / name).absolute()

    def _expectation(self, node: Node) -> Expectation:
        keys = Keys.of(node, "an expectation", _EXPECTATION_KEYS)
        event = keys.needed("event", _EVENT)
        is_absent = keys.read("absent", _FLAG, False)
        if is_absent:
            keys.refuse((*_CONTENT_KEYS, *_CALL_KEYS, *_MARKER_KEYS, "check_from"), "cannot be where 'absent' is true")
        if event not in CALL_EVENTS:
            keys.refuse(_CALL_KEYS, f"is for function_call and function_call_stopped, not {event}")
        if event != "llm_marker":
            keys.refuse(_MARKER_KEYS, f"is for llm_marker, not {event}")
        if event == "function_call_stopped":
            keys.refuse(("eval",), "is for function_call: a call that has stopped has no arguments to judge")
        if self.judge is not None and self.judge.modality == "text":
            if event == "tts_response":
                hint = "the bot does not speak, unless the scenario's 'judge' has 'modality: audio'"
                raise keys.node_needed("event").fault(f"{event} cannot come: {hint}")
            event = "llm_response" if event == "response" else event
        return Expectation(
            event=event,
            within_ms=keys.read("within_ms", _MILLISECONDS),
            text_contains=keys.read("text_contains", _PART),
            text_excludes=keys.read("text_excludes", _PART),
            calls=_expected_calls(keys) if event in CALL_EVENTS and not is_absent else (),
            eval=keys.read("eval", _TEXT),
            marker=keys.read("marker", _MARKER),
            marker_first=keys.read("marker_first", _FLAG),
            markers=keys.read("markers", COUNT_OR_ZERO),
            text_after=keys.read("text_after", _FLAG),
            absent=is_absent,
            check_from=keys.read("check_from", _CHECK_FROM, "previous"),
            at=node.place,
        )


def _part(node: Node) -> str | SpokenPause:
    """Return an item of `user`: a text or a pause."""
    if isinstance(node.value, dict):
        return SpokenPause(Keys.of(node, "a pause", ("pause_ms",)).needed("pause_ms", integer(1, MAX_PAUSES_MS)))
    check(node, "user", _SAID_PART)
    return str(node.value).strip()


def _send_after(node: Node) -> SendAfter:
    keys = Keys.of(node, "'send_after'", ("event", "delay_ms"))
    found = SendAfter(keys.read("event", _EVENT), keys.read("delay_ms", integer(0, MAX_MS), 0))
    if found.event is None and not found.delay_ms:
        raise node.fault("'send_after' needs an 'event', or a 'delay_ms' of more than 0")
    return found


def _expected_calls(keys: Keys) -> tuple[ExpectedCall, ...]:
    """Return the expected calls, from `calls`, or from `name` and `args`."""
    nodes = keys.items("calls")
    if nodes is None:
        return (ExpectedCall(keys.read("name", _TEXT), _args(keys)),)
    keys.refuse(("name", "args"), "is for one call; it cannot be beside 'calls'")
    if not nodes:
        raise keys.node_needed("calls").fault("'calls' must have one call at least")
    return tuple(map(_expected_call, nodes))


def _expected_call(node: Node) -> ExpectedCall:
    if isinstance(node.value, dict):
        keys = Keys.of(node, "a call", ("name", "args"))
        return ExpectedCall(keys.read("name", _TEXT), _args(keys))
    check(node, "calls", _CALL)
    return ExpectedCall(str(node.value))


def _args(keys: Keys) -> Mapping[str, Any] | None:
    node = keys.value_of("args")
    return None if node is None else _plain(node, "'args'")


# -- simulated --------------------------------------------------------------------------------------------------------


def _simulation(reading: _Reading, keys: Keys, user: UserSettings | None) -> Simulation:
    if user is not None and user.modality == "audio" and user.speech is None:
        raise keys.node_needed("user").fault("'user' needs the key 'speech', because its modality is audio")
    names: dict[str, int] = {}
    return Simulation(
        persona=keys.needed("persona", _TEXT).strip(),
        goal=keys.needed("goal", _TEXT).strip(),
        success=keys.needed("success", _TEXT).strip(),
        simulator=_options(keys, "simulator", _MODEL) or {},
        metrics=reading.each(keys.items("metrics") or [], lambda node: _metric(node, names)),
        max_turns=keys.read("max_turns", _TIMES, 20),
        max_duration_s=keys.read("max_duration_s", _SECONDS, 300.0),
        max_silence_s=keys.read("max_silence_s", _SECONDS, 30.0),
        runs=keys.read("runs", _TIMES, 1),
    )


def _metric(node: Node, names: dict[str, int]) -> SimulationMetric:
    keys = Keys.of(node, "a metric", _METRIC_KEYS)
    criterion, measure = keys.read("criterion", _TEXT), keys.read("measure", _MEASURE)
    if (criterion is None) == (measure is None):
        raise node.fault("a metric has 'criterion' if it is judged, or 'measure' if it is measured, and not both")
    name = keys.read("name", _NAME) if measure is not None else keys.needed("name", _NAME)
    name = measure if name is None else name
    if name in names:
        raise node.fault(f"the metric {quoted(name)} is there twice, first in line {names[name]}")
    names[name] = node.line
    if measure is None:
        keys.refuse(("min_value", "max_value", "calls"), "is for a metric with 'measure'")
    else:
        keys.refuse(("min_score",), "is for a metric with 'criterion'")
    calls = None
    if measure == "function_calls":
        keys.refuse(("min_value", "max_value"), "is not for calls, which 'calls' lists")
        calls = tuple(map(_exact_call, items_of(keys.node_needed("calls"), "calls")))
    elif measure is not None:
        keys.refuse(("calls",), "is for 'measure: function_calls'")
    low, high = keys.read("min_value", NUMBER), keys.read("max_value", NUMBER)
    if measure not in (None, "function_calls") and low is None and high is None:
        raise node.fault("a metric with 'measure' needs 'min_value' or 'max_value'")
    if low is not None and high is not None and low > high:
        raise keys.node_needed("min_value").fault("'min_value' is more than 'max_value'")
    return SimulationMetric(
        name=name,
        criterion=criterion,
        min_score=keys.read("min_score", number(0, 1)),
        measure=measure,
        min_value=low,
        max_value=high,
        calls=calls,
    )


def _exact_call(node: Node) -> ExpectedCall:
    """Return a call of a metric, which must have a name."""
    call = _expected_call(node)
    if call.name is None:
        raise node.fault("a call needs the key 'name'")
    return call
