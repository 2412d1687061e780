"""The content of a scenario file, and its faults."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import MissingExtraError
from rtvi_sync.testing import scenarios
from rtvi_sync.testing.scenarios import Scenario, ScenarioFileError
from tests.support.processes import run_python

Load = Callable[..., Sequence[Scenario]]
Fault = Callable[..., str]

SPOKEN = "user: {modality: audio, speech: {service: kokoro, voice: x}}\n"
HEARD = "judge: {modality: audio, transcription: {service: moonshine}}\n"


def only(found: Sequence[Any]) -> Any:
    (one,) = found
    return one


def values(record: Any, *left_out: str) -> dict[str, Any]:
    """Return the fields of a record that are not their defaults."""
    fields = type(record).__attrs_attrs__
    kept = {field.name: getattr(record, field.name) for field in fields if field.name not in ("at", *left_out)}
    return {name: value for name, value in kept.items() if value not in (None, (), {}, False)}


# -- files ------------------------------------------------------------------------------------------------------------


def test_one_scenario_at_the_top(load: Load, tmp_path: Path) -> None:
    """A file without `scenarios` is one, which has the file's name."""
    scenario = only(load("name: greeting\nturns: []\n"))
    assert (scenario.name, scenario.full_name, scenario.kind) == ("greeting", "greeting", "script")
    assert scenario.path == tmp_path / "calls.yaml"
    assert (scenario.turns, scenario.context, scenario.simulation) == ((), (), None)
    assert (scenario.stop_on_failure, scenario.trigger_disconnect) == (True, False)
    assert (scenario.user.modality, scenario.user.speech) == ("text", None)
    assert (scenario.judge.modality, scenario.judge.eval, scenario.judge.transcription) == ("text", {}, None)


def test_several_scenarios(load: Load) -> None:
    """A scenario takes missing keys from the file; its own keys replace the file's, whole."""
    text = """
name: booking
stop_on_failure: false
trigger_disconnect: true
judge: {modality: audio, transcription: {service: whisper, model: base}}
context: [{role: system, content: shared}]
turns: [{user: shared}]
scenarios:
  - name: first
  - name: second
    stop_on_failure: true
    judge: {eval: {model: m}}
    context:
    turns: []
  - name: third
    context: []
"""
    first, second, third = load(text)
    assert [each.full_name for each in (first, second, third)] == ["booking/first", "booking/second", "booking/third"]
    assert [each.name for each in (first, second, third)] == ["first", "second", "third"]
    assert values(first.judge) == {
        "modality": "audio",
        "transcription": {"service": "whisper", "model": "base"},
    }
    assert first.context == ({"role": "system", "content": "shared"},)
    assert (first.stop_on_failure, first.trigger_disconnect, only(first.turns).user) == (False, True, "shared")
    assert values(second.judge) == {"modality": "text", "eval": {"model": "m"}}
    assert (second.stop_on_failure, second.context, second.turns) == (True, (), ())
    assert third.context == ()
    assert third.turns == first.turns


def test_where_things_are(load: Load, tmp_path: Path) -> None:
    """Scenarios, turns and expectations know their line, also in an included file."""
    text = "name: a\nscenarios:\n  - name: b\n    turns:\n      - user: x\n        expect: !include expect.yaml\n"
    scenario = only(load(text, expect="# what\n- event: response\n"))
    turn = only(scenario.turns)
    assert str(scenario.at) == f"{tmp_path / 'calls.yaml'}:3"
    assert str(turn.at) == f"{tmp_path / 'calls.yaml'}:5"
    assert str(only(turn.expect).at) == f"{tmp_path / 'expect.yaml'}:2"
    assert only(turn.expect).at.column == 3


def test_a_folder(load: Load, tmp_path: Path) -> None:
    """The named files of a folder are read in their order; included files, and folders, are left out."""
    (tmp_path / "later").mkdir()
    for name, text in {
        "later/no.yaml": "name: no\nturns: []\n",
        "b.yml": "name: b\nturns: []\n",
        "a.yaml": "name: a\nscenarios: [{name: 2, turns: []}, {name: one, turns: []}]\n".replace("2", "two"),
        "judge.yaml": "modality: text\n",
        "messages.yaml": "[{role: user}]\n",
        "empty.yaml": "",
        "c.json": "{}",
    }.items():
        (tmp_path / name).write_text(text)
    assert [scenario.full_name for scenario in scenarios.load(tmp_path)] == ["a/two", "a/one", "b"]
    assert [scenario.full_name for scenario in scenarios.load(str(tmp_path))] == ["a/two", "a/one", "b"]


def test_names_in_a_folder(tmp_path: Path) -> None:
    """Two scenarios of a folder have different names."""
    (tmp_path / "a.yaml").write_text("name: a\nscenarios: [{name: b, turns: []}]\n")
    (tmp_path / "b.yaml").write_text("# the same\nname: a/b\nturns: []\n")
    with pytest.raises(ScenarioFileError) as caught:
        scenarios.load(tmp_path)
    expected = f"{tmp_path}/b.yaml:2:7: the scenario 'a/b' is there twice, first at {tmp_path}/a.yaml:2"
    assert str(caught.value) == expected


def test_faults_of_a_folder(tmp_path: Path) -> None:
    """All faults of all files are found in one go, each once, in the order of files and lines."""
    (tmp_path / "a.yaml").write_text(
        "name: a\nuser: {modality: loud}\nturns:\n  - {usr: x}\n  - expect:\n    - {event: respons}\n"
        "    - {event: response, within_ms: 0}\n  - {user: x, dtmf: 1}\n"
    )
    (tmp_path / "b.yaml").write_text("name: b\nturns: [\n")
    (tmp_path / "c.yaml").write_text(
        "name: c\njudge: {modality: loud}\nscenarios:\n  - {name: x, turns: []}\n  - {name: y, turns: []}\n"
    )
    (tmp_path / "d.yaml").write_text("name: a\nturns: [{usr: Hi}]\n")  # the name of the first file
    with pytest.raises(ScenarioFileError) as caught:
        scenarios.load(tmp_path)
    error = caught.value
    lines = str(error).replace(f"{tmp_path}/", "").splitlines()
    assert [line.split(" ")[0] for line in lines] == [
        *("a.yaml:2:18:", "a.yaml:4:6:", "a.yaml:6:15:", "a.yaml:7:36:", "a.yaml:8:15:", "b.yaml:3:1:", "c.yaml:2:19:"),
        *("d.yaml:1:7:", "d.yaml:2:10:"),
    ]
    assert (error.path, error.line, error.column) == (tmp_path / "a.yaml", 2, 18)
    assert error.text == "'modality' must be text or audio, not 'loud'"
    assert error.others[0][:3] == (tmp_path / "a.yaml", 4, 6)


def test_not_all_of_many_faults_are_listed(fault: Fault) -> None:
    """An error has 100 faults at most."""
    assert len(fault("name: a\nturns: [" + "{usr: x}, " * 200 + "]\n").splitlines()) == 100


@pytest.mark.parametrize(
    ("name", "text"),
    [("no.yaml", "cannot be read: No such file"), ("", "no scenario file in this folder"), ("pipe", "not a file")],
)
def test_no_file(tmp_path: Path, name: str, text: str) -> None:
    """An unreadable file is a fault of the whole file."""
    if name == "pipe":
        os.mkfifo(tmp_path / name)
    with pytest.raises(ScenarioFileError, match=text) as caught:
        scenarios.load(tmp_path / name)
    assert (caught.value.line, caught.value.column) == (0, 0)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")


def test_a_manifest(fault: Fault) -> None:
    """A manifest of a suite is not a scenario, and the error calls it a manifest."""
    assert "a manifest of `pipecat eval suite`" in fault("bots_dir: x\nsuite:\n  - {bot: a.py, scenarios: [a]}\n")


def test_without_the_extra() -> None:
    """Without PyYAML the error names the extra, and nothing else needs it."""
    script = """
import sys
sys.modules["yaml"] = None
from rtvi_sync import MissingExtraError
from rtvi_sync.testing import scenarios
from rtvi_sync.testing.scenarios import Scenario, ScenarioFileError
try:
    scenarios.load("calls.yaml")
except MissingExtraError as error:
    print(error.extra)
"""
    assert run_python(script) == (0, "scenarios\n", "")
    assert issubclass(MissingExtraError, ImportError)


def test_no_yaml_before_a_file_is_read() -> None:
    """The import of the tools of tests does not import PyYAML."""
    script = """
import sys
import rtvi_sync.testing
from rtvi_sync.testing import EmbeddedBot, scenarios
from rtvi_sync.testing.scenarios import Scenario
print(sorted({"yaml", "mcp", "numpy"} & set(sys.modules)))
"""
    assert run_python(script) == (0, "[]\n", "")


# -- settings ---------------------------------------------------------------------------------------------------------


def test_services(load: Load) -> None:
    """The options of services are kept as they are."""
    text = """
name: a
turns: []
user:
  modality: audio
  speech:
    service: kokoro
    voice: af_heart
    model: m
    language: en
    speed: 1.25
    sample_rate: 16_000
    api_key: secret
judge:
  modality: audio
  eval:
    service: OpenAI
    model: gpt-4o-mini
    endpoint: http://127.0.0.1:11434/v1
    extra: {reasoning_effort: none, list: [1, 2.5, true, null]}
    explainer: {service: ollama, model: n, extra: {a: b}}
    explain_below: 0.5
    allow_continue: false
  transcription: {service: whisper, model: base, language: en, padding_secs: 0, device: cpu, compute_type: int8}
"""
    scenario = only(load(text))
    assert scenario.user.speech == {
        "service": "kokoro",
        "voice": "af_heart",
        "model": "m",
        "language": "en",
        "speed": 1.25,
        "sample_rate": 16000,
        "api_key": "secret",
    }
    assert scenario.judge.eval == {
        "service": "OpenAI",
        "model": "gpt-4o-mini",
        "endpoint": "http://127.0.0.1:11434/v1",
        "extra": {"reasoning_effort": "none", "list": [1, 2.5, True, None]},
        "explainer": {"service": "ollama", "model": "n", "extra": {"a": "b"}},
        "explain_below": 0.5,
        "allow_continue": False,
    }
    assert scenario.judge.transcription["compute_type"] == "int8"
    assert "secret" not in repr(scenario)


def test_factories(load: Load) -> None:
    """A factory takes any option."""
    text = """
name: a
user: {modality: audio, speech: {factory: my.voice, voice: {id: 7}, style: [calm]}}
judge:
  modality: audio
  eval: {factory: my.judge, temperature: 0, explainer: false}
  transcription: {factory: my.ears, keyterms: [a]}
turns: []
"""
    scenario = only(load(text))
    assert scenario.user.speech == {"factory": "my.voice", "voice": {"id": 7}, "style": ["calm"]}
    assert scenario.judge.eval == {"factory": "my.judge", "temperature": 0, "explainer": False}
    assert scenario.judge.transcription == {"factory": "my.ears", "keyterms": ["a"]}


@pytest.mark.parametrize("text", ["user:", "judge:", "context:", "judge: {eval: }", "user: {speech: }"])
def test_nothing_is_the_default(load: Load, text: str) -> None:
    """A key without a value is left out."""
    assert values(only(load(f"name: a\nturns: []\n{text}\n")).judge) == {"modality": "text"}


# -- turns ------------------------------------------------------------------------------------------------------------


def test_turns(load: Load, tmp_path: Path) -> None:
    """A turn is spoken or typed, recorded, pressed, or only observes."""
    text = f"""
name: a
{SPOKEN}
turns:
  - {{}}
  - {{user: hello, image: cat.jpg}}
  - {{user: hello, audio: ../hello.wav, send_after: {{event: llm_started, delay_ms: 500}}}}
  - user:
      - " So last week I went to "
      - pause_ms: 2000
      - Spain.
  - {{dtmf: 123, send_after: {{delay_ms: 20}}}}
  - {{dtmf: 012}}
  - {{dtmf: "1*#", send_after: {{event: bot_stopped_speaking}}}}
  - {{expect: []}}
"""
    turns = only(load(text)).turns
    observing, image, recorded, paused, *pressed, last = turns
    assert values(observing) == values(last) == {}
    assert values(image) == {"user": "hello", "image": tmp_path / "cat.jpg"}
    assert (recorded.audio, recorded.user) == (tmp_path / "../hello.wav", "hello")
    assert (recorded.send_after.event, recorded.send_after.delay_ms) == ("llm_started", 500)
    assert paused.user == "So last week I went to Spain."
    first, pause, end = paused.parts
    assert (first, pause.pause_ms, end) == ("So last week I went to", 2000, "Spain.")
    assert [turn.dtmf for turn in pressed] == ["123", "012", "1*#"]
    assert (pressed[0].send_after.event, pressed[0].send_after.delay_ms) == (None, 20)
    assert (pressed[2].send_after.event, pressed[2].send_after.delay_ms) == ("bot_stopped_speaking", 0)


def test_paths_are_relative_to_the_scenario_file(tmp_path: Path) -> None:
    """A turn of an included file has its image beside the file that was loaded."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "turn.yaml").write_text("user: x\nimage: cat.jpg\n")
    (tmp_path / "a.yaml").write_text("name: a\nturns: [!include shared/turn.yaml]\n")
    assert only(only(scenarios.load(tmp_path / "a.yaml")).turns).image == tmp_path / "cat.jpg"


EVENTS = [
    *("user_started_speaking", "user_stopped_speaking", "vad_user_started_speaking", "vad_user_stopped_speaking"),
    *("user_transcription", "bot_started_speaking", "bot_stopped_speaking", "bot_interrupted", "llm_started"),
    *("response", "llm_response", "tts_response", "llm_marker", "function_call", "function_call_stopped", "image"),
    *("bot_backchannel", "user_backchannel"),
]


def test_events(load: Load) -> None:
    """Each event can be expected, be absent, and start a wait."""
    line = "  - {user: x, send_after: {event: E}, expect: [{event: E}, {event: E, absent: true}]}\n"
    lines = "".join(line.replace("E", event) for event in EVENTS)
    turns = only(load(f"name: a\n{SPOKEN}{HEARD}turns:\n{lines}")).turns
    assert [turn.send_after.event for turn in turns] == EVENTS
    assert [[each.event for each in turn.expect] for turn in turns] == [[event, event] for event in EVENTS]
    assert [[each.absent for each in turn.expect] for turn in turns] == [[False, True]] * len(EVENTS)


def test_a_response_in_text(load: Load) -> None:
    """If the bot's modality is text, a response is the language model's text."""
    text = "name: a\nturns: [{expect: [{event: response, eval: greets}, {event: llm_response}]}]\n"
    assert [each.event for each in only(only(load(text)).turns).expect] == ["llm_response"] * 2
    assert [each.event for each in only(only(load(text + HEARD)).turns).expect] == ["response", "llm_response"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("event: response", {"event": "response"}),
        ("event: image, within_ms: 3_600_000", {"event": "image", "within_ms": 3_600_000}),
        ("event: response, within_ms: 1, absent: true", {"event": "response", "within_ms": 1, "absent": True}),
        ("event: response, absent: false, eval: polite", {"event": "response", "eval": "polite"}),
        (
            'event: response, text_contains: "a  b", text_excludes: c, check_from: turn_start',
            {"event": "response", "text_contains": "a  b", "text_excludes": "c", "check_from": "turn_start"},
        ),
        (
            "event: llm_marker, marker: incomplete, marker_first: true, markers: 1, text_after: true",
            {"event": "llm_marker", "marker": "incomplete", "marker_first": True, "markers": 1, "text_after": True},
        ),
        ("event: llm_marker, marker: ", {"event": "llm_marker"}),
    ],
)
def test_expectations(load: Load, text: str, expected: dict[str, Any]) -> None:
    """The keys of an expectation."""
    expectation = only(only(only(load(f"name: a\n{HEARD}turns: [{{expect: [{{{text}}}]}}]\n")).turns).expect)
    assert values(expectation) == {"check_from": "previous", **expected}


@pytest.mark.parametrize("event", ["function_call", "function_call_stopped"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(None, None)]),
        ("name: book", [("book", None)]),
        ("args: {day: Monday}", [(None, {"day": "Monday"})]),
        ("name: book, args: {}", [("book", {})]),
        (
            "name: book, args: {n: 1, deep: {list: [1.5, no, ~]}}",
            [("book", {"n": 1, "deep": {"list": [1.5, False, None]}})],
        ),
        ("calls: [a, {name: b}, {name: c, args: {x: y}}]", [("a", None), ("b", None), ("c", {"x": "y"})]),
        ("absent: true", []),
    ],
)
def test_calls(load: Load, event: str, text: str, expected: list[Any]) -> None:
    """Calls are expected by name, by arguments, or at all."""
    expectation = only(only(only(load(f"name: a\nturns: [{{expect: [{{event: {event}, {text}}}]}}]\n")).turns).expect)
    assert [(call.name, call.args) for call in expectation.calls] == expected


# -- simulations ------------------------------------------------------------------------------------------------------


def test_a_simulation(load: Load) -> None:
    """A scenario with a persona is simulated; a file may have both kinds."""
    text = """
name: diner
persona: " Jamie, friendly.\\n"
success: the bot did what the caller asked
goal: Cancel the table.
scenarios:
  - name: book
    goal: Book a table.
    simulator: {service: ollama, model: m, extra: {key: secret}}
    max_turns: 8
    max_duration_s: 120
    max_silence_s: 2.5
    runs: 3
    metrics:
      - {name: politeness, criterion: stays courteous, min_score: 0.5}
      - {name: warmth, criterion: is warm}
      - {measure: turns, max_value: 5}
      - {name: length, measure: words, min_value: 1, max_value: 40.5}
      - {measure: latency, max_value: 3}
      - {measure: duration, min_value: 3}
      - {measure: function_calls, calls: [book, {name: mail, args: {to: me}}]}
      - {name: nothing, measure: function_calls, calls: []}
  - name: cancel
    metrics:
"""
    book, cancel = load(text)
    assert (book.kind, book.full_name, book.turns) == ("simulation", "diner/book", ())
    caller: Any = book.simulation
    assert (caller.persona, caller.goal, caller.success) == (
        *("Jamie, friendly.", "Book a table.", "the bot did what the caller asked"),
    )
    assert caller.simulator == {"service": "ollama", "model": "m", "extra": {"key": "secret"}}
    assert (caller.max_turns, caller.max_duration_s, caller.max_silence_s, caller.runs) == (8, 120, 2.5, 3)
    assert [values(metric, "calls") for metric in caller.metrics] == [
        {"name": "politeness", "criterion": "stays courteous", "min_score": 0.5},
        {"name": "warmth", "criterion": "is warm"},
        {"name": "turns", "measure": "turns", "max_value": 5},
        {"name": "length", "measure": "words", "min_value": 1, "max_value": 40.5},
        {"name": "latency", "measure": "latency", "max_value": 3},
        {"name": "duration", "measure": "duration", "min_value": 3},
        {"name": "function_calls", "measure": "function_calls"},
        {"name": "nothing", "measure": "function_calls"},
    ]
    assert [(call.name, call.args) for call in caller.metrics[6].calls] == [("book", None), ("mail", {"to": "me"})]
    assert (caller.metrics[7].calls, caller.metrics[0].calls) == ((), None)
    assert "secret" not in repr(book)
    assert values(cancel.simulation) == {
        "persona": "Jamie, friendly.",
        "goal": "Cancel the table.",
        "success": "the bot did what the caller asked",
        "max_turns": 20,
        "max_duration_s": 300.0,
        "max_silence_s": 30.0,
        "runs": 1,
    }


# -- faults -----------------------------------------------------------------------------------------------------------

T = "name: a\nturns:\n"
E = f"{T}  - expect:\n    - "
S = "name: a\npersona: p\ngoal: g\nsuccess: s\n"
M = f"{S}metrics:\n  - "

FAULTS = [
    # files
    ("turns: []\n", "1:1: a scenario file needs the key 'name'"),
    ("- name: a\n", "1:1: a scenario file must be a mapping, not a list"),
    ("", "1:1: a scenario file must be a mapping, not nothing"),
    ("name: yes\nturns: []\n", "1:7: 'name' must be text .* not a boolean .*; write it in quotes"),
    ("name: 5\nturns: []\n", "1:7: 'name' must be text .* not a number; write it in quotes"),
    ('name: "a\\e[31m"\nturns: []\n', "1:7: 'name' must be text of one line, without control characters"),
    ("name: ' '\nturns: []\n", "1:7: 'name' must be text"),
    ("name: a\nturn: []\n", "2:1: a scenario file has no key 'turn'; did you mean 'turns'?"),
    ("name: a\nzzz: []\n", "2:1: a scenario file has no key 'zzz'; it has name, "),
    ("name: a\nturns: []\nname: b\n", "3:1: the key 'name' is there twice, first in line 1"),
    ("name: a\n", "1:1: a scenario has 'turns' .* or 'persona' .* neither"),
    ("name: a\nturns: []\npersona: p\n", "1:1: a scenario has 'turns' .* or 'persona' .* not both"),
    ("name: a\nturns: []\ngoal: g\n", "3:1: 'goal' is for simulated scenarios"),
    (f"{S}context: []\n", "5:1: 'context' is for scripted scenarios"),
    ("name: a\nscenarios: []\n", "2:12: 'scenarios' must have one scenario at least"),
    ("name: a\nscenarios: {b: c}\n", "2:12: 'scenarios' must be a list, not a mapping"),
    ("name: a\nscenarios:\n  - turns: []\n", "3:5: a scenario needs the key 'name'"),
    (
        "name: a\nscenarios:\n  - {name: b, turns: []}\n  - {name: b, turns: []}\n",
        "4:12: the scenario 'a/b' is there twice, first at calls.yaml:3",
    ),
    ("name: a\nscenarios:\n  - name: b\n    scenarios: []\n", "4:5: a scenario has no key 'scenarios'"),
    ("name: a\nscenarios:\n  - name: b\n    turns: []\n    goal: g\n", "5:5: 'goal' is for simulated scenarios"),
    # settings
    ("name: a\nturns: []\nstop_on_failure: 1\n", "3:18: 'stop_on_failure' must be true or false, not 1"),
    ("name: a\nturns: []\nstop_on_failure:\n", "3:17: 'stop_on_failure' must be true or false, not nothing"),
    ("name: a\nturns: []\ntrigger_disconnect: maybe\n", "3:21: 'trigger_disconnect' must be true or false"),
    ("name: a\nturns: []\ncontext: hi\n", "3:10: 'context' must be a list, not text"),
    ("name: a\nturns: []\ncontext: [hi]\n", "3:11: a message of 'context' must be a mapping, not text"),
    ("name: a\nturns: []\nuser: text\n", "3:7: 'user' must be a mapping, not text"),
    ("name: a\nturns: []\nuser: {modality: adio}\n", "3:18: .* not 'adio'; did you mean 'audio'?"),
    ("name: a\nturns: []\nuser: {modality: }\n", "3:1[78]: 'modality' must be text or audio, not nothing"),
    ("name: a\nturns: []\nuser: {speech: {voise: x}}\n", "3:17: 'speech' has no key 'voise'; did you mean 'voice'?"),
    ("name: a\nturns: []\nuser: {speech: {service: koko}}\n", "3:26: .* did you mean 'kokoro'?"),
    ("name: a\nturns: []\nuser: {speech: {language: no}}\n", "3:27: 'language' must be text .* a boolean"),
    ("name: a\nturns: []\nuser: {speech: {api_key: 123456}}\n", "3:26: 'api_key' must be text .* not a number;"),
    (
        "name: a\nturns: []\nuser: {speech: {speed: fast}}\n",
        "3:24: 'speed' must be a number from 0.1 to 10, not 'fast'",
    ),
    ("name: a\nturns: []\nuser: {speech: {factory: voice}}\n", "3:26: 'factory' must be a dotted path"),
    ("name: a\nturns: []\njudge: {modality: audio}\n", "3:8: 'judge' needs the key 'transcription'"),
    ("name: a\nturns: []\njudge: {eval: {modle: m}}\n", "3:16: 'eval' has no key 'modle'; did you mean 'model'?"),
    ("name: a\nturns: []\njudge: {eval: {extra: [a]}}\n", "3:23: 'extra' must be a mapping, not a list"),
    ("name: a\nturns: []\njudge: {eval: {explainer: true}}\n", "3:27: 'explainer' must be a mapping or false"),
    ("name: a\nturns: []\njudge: {eval: {explainer: {service: x}}}\n", "3:37: 'service' must be ollama or openai"),
    ("name: a\nturns: []\njudge: {eval: {allow_continue: 0}}\n", "3:32: 'allow_continue' must be true or false"),
    ("name: a\nturns: []\njudge: {transcription: {padding_secs: -1}}\n", "3:39: 'padding_secs' must be a number"),
    # turns
    ("name: a\nturns: {user: x}\n", "2:8: 'turns' must be a list, not a mapping"),
    (f"{T}  - hello\n", "3:5: a turn must be a mapping, not text"),
    (f"{T}  - usr: hello\n", "3:5: a turn has no key 'usr'; did you mean 'user'?"),
    (f"{T}  - user: 5\n", "3:11: 'user' must be text .* not a number; write it in quotes"),
    (f"{T}  - user: '  '\n", "3:11: 'user' must be text that is not blank"),
    (f"{T}  - user: hello\n    user: again\n", "4:5: the key 'user' is there twice, first in line 3"),
    (f"{T}  - user: [a, {{pause_ms: 5}}]\n", "3:11: a list, with pauses, is for spoken turns"),
    (f"{SPOKEN}{T}  - user: [{{pause_ms: 5}}]\n", "4:11: 'user' has no text"),
    (f"{SPOKEN}{T}  - user: [a, {{pause_ms: 0}}]\n", "4:26: 'pause_ms' must be an integer from 1 to 600000, not 0"),
    (f"{SPOKEN}{T}  - user: [a, {{pause: 5}}]\n", "4:16: a pause has no key 'pause'; did you mean 'pause_ms'?"),
    (f"{SPOKEN}{T}  - user: [a, 500]\n", "4:15: 'user' must be text .*, or 'pause_ms: N', not a number"),
    (f"{SPOKEN}{T}  - user: [a{', {pause_ms: 300000}' * 3}]\n", "4:11: the pauses of a turn are more than 600000 ms"),
    (f"{T}  - dtmf: 12a\n", "3:11: 'dtmf' must be 1 to 1000 keys of 0-9, . and #, not '12a'"),
    (f"{T}  - dtmf: yes\n", "3:11: 'dtmf' must be 1 to 1000 keys .* not a boolean"),
    (f"{T}  - dtmf: -5\n", "3:11: 'dtmf' must be 1 to 1000 keys"),
    (f"{T}  - {{user: a, dtmf: 1}}\n", "3:15: a turn has 'user' or 'dtmf', not both"),
    (f"{T}  - {{user: a, audio: b.wav}}\n", "3:15: 'audio' is for spoken turns: set 'modality: audio'"),
    (f"{SPOKEN}{T}  - audio: b.wav\n", "4:5: 'audio' needs 'user'"),
    (f"{SPOKEN}{T}  - {{user: [a, {{pause_ms: 5}}], audio: b.wav}}\n", "4:32: 'audio' has its own pauses"),
    (f"user: {{modality: audio}}\n{T}  - user: a\n", "4:11: a spoken turn needs 'speech' .* or a recording"),
    (f"{T}  - image: [cat.jpg]\n", "3:12: 'image' must be the path of a file, not a list"),
    (f"{T}  - send_after: {{delay_ms: 5}}\n", "3:5: 'send_after' needs something to send"),
    (f"{T}  - {{user: a, send_after: {{}}}}\n", "3:27: 'send_after' needs an 'event', or a 'delay_ms'"),
    (f"{T}  - {{user: a, send_after: {{event: llm_start}}}}\n", "3:35: .* did you mean 'llm_started'?"),
    (f"{T}  - {{user: a, send_after: {{delay_ms: -1}}}}\n", "3:38: 'delay_ms' must be an integer from 0 to 3600000"),
    (f"{T}  - {{user: a, send_after: {{delay_ms: true}}}}\n", "3:38: 'delay_ms' must be an integer .* a boolean"),
    (f"{T}  - {{user: a, send_after: }}\n", "3:2[67]: 'send_after' must be a mapping, not nothing"),
    (f"{T}  - user: a\n    expect:\n", "4:12: 'expect' must be a list, not nothing"),
    # expectations
    (f"{E}response\n", "4:7: an expectation must be a mapping, not text"),
    (f"{E}within_ms: 5\n", "4:7: an expectation needs the key 'event'"),
    (f"{E}event: respons\n", "4:14: 'event' must be .* not 'respons'; did you mean 'response'?"),
    (f"{E}event: response\n      text_contain: a\n", "5:7: .* no key 'text_contain'; did you mean 'text_contains'?"),
    (f"{E}event: response\n      within_ms: 5s\n", "5:18: 'within_ms' must be an integer from 1 to 3600000, not '5s'"),
    (f"{E}event: response\n      within_ms: 1.5\n", "5:18: 'within_ms' must be an integer .* not 1.5"),
    (f"{E}event: response\n      within_ms: 3_600_001\n", "5:18: 'within_ms' must be .* not 3600001"),
    (f"{E}event: response\n      within_ms: 010\n", "5:18: 'within_ms' must be .* not '010'"),
    (f"{E}event: response\n      text_contains: [a, b]\n", "5:22: 'text_contains' must be text .* not a list"),
    (f"{E}event: response\n      text_excludes: ''\n", "5:22: 'text_excludes' must be text that is not empty"),
    (f"{E}event: response\n      calls: [a]\n", "5:7: 'calls' is for function_call and function_call_stopped"),
    (f"{E}event: response\n      marker: short\n", "5:7: 'marker' is for llm_marker, not response"),
    (f"{E}event: tts_response\n", "4:14: tts_response cannot come: the bot does not speak"),
    (f"{E}event: llm_marker\n      marker: shrt\n", "5:15: .* did you mean 'short'?"),
    (f"{E}event: llm_marker\n      markers: yes\n", "5:16: 'markers' must be an integer"),
    (f"{E}event: llm_marker\n      text_after: 1\n", "5:19: 'text_after' must be true or false"),
    (f"{E}event: function_call\n      calls: []\n", "5:14: 'calls' must have one call at least"),
    (f"{E}event: function_call\n      calls: {{name: a}}\n", "5:14: 'calls' must be a list, not a mapping"),
    (f"{E}event: function_call\n      calls: [a]\n      name: b\n", "6:7: 'name' is for one call"),
    (f"{E}event: function_call\n      calls: [{{nam: a}}]\n", "5:16: a call has no key 'nam'; did you mean 'name'?"),
    (f"{E}event: function_call\n      calls: [5]\n", "5:15: 'calls' must be the name of a function"),
    (f"{E}event: function_call\n      args: [a]\n", "5:13: 'args' must be a mapping, not a list"),
    (f"{E}event: function_call\n      args: {{1: a}}\n", "5:14: a key must be text, not a number"),
    (f"{E}event: function_call\n      args: {{day: 2024-01-01}}\n", "5:19: '2024-01-01' is a date; write it in quotes"),
    (f"{E}event: function_call_stopped\n      eval: right\n", "5:7: 'eval' is for function_call"),
    (f"{E}event: response\n      absent: true\n      eval: a\n", "6:7: 'eval' cannot be where 'absent' is true"),
    (f"{E}event: response\n      absent: true\n      check_from: previous\n", "6:7: 'check_from' cannot be where"),
    (f"{E}event: response\n      absent: 'yes'\n", "5:15: 'absent' must be true or false, not 'yes'"),
    (f"{E}event: response\n      check_from: start\n", "5:19: 'check_from' must be previous or turn_start"),
    # simulations
    ("name: a\npersona: p\ngoal: g\n", "1:1: a scenario file needs the key 'success'"),
    ("name: a\npersona: p\ngoal: g\nsuccess: ' '\n", "4:10: 'success' must be text that is not blank"),
    (f"{S}max_turns: 0\n", "5:12: 'max_turns' must be an integer from 1 to 1000, not 0"),
    (f"{S}max_duration_s: 3601\n", "5:17: 'max_duration_s' must be a number of seconds, more than 0 and at most 3600"),
    (f"{S}max_silence_s: 0\n", "5:16: 'max_silence_s' must be a number of seconds"),
    (f"{S}runs: 1.5\n", "5:7: 'runs' must be an integer"),
    (f"{S}user: {{modality: audio}}\n", "5:7: 'user' needs the key 'speech'"),
    (f"{M}name: x\n", "6:5: a metric has 'criterion' .* or 'measure'"),
    (f"{M}criterion: x\n", "6:5: a metric needs the key 'name'"),
    (f"{M}{{name: x, criterion: y, min_score: 2}}\n", "6:40: 'min_score' must be a number from 0 to 1, not 2"),
    (f"{M}{{name: x, criterion: y, max_value: 2}}\n", "6:29: 'max_value' is for a metric with 'measure'"),
    (f"{M}{{measure: wrds, max_value: 2}}\n", "6:15: .* did you mean 'words'?"),
    (f"{M}{{measure: words}}\n", "6:5: a metric with 'measure' needs 'min_value' or 'max_value'"),
    (f"{M}{{measure: words, min_value: 2, max_value: 1}}\n", "6:33: 'min_value' is more than 'max_value'"),
    (f"{M}{{measure: words, max_value: 1, min_score: 1}}\n", "6:36: 'min_score' is for a metric with 'criterion'"),
    (f"{M}{{measure: words, max_value: 1, calls: []}}\n", "6:36: 'calls' is for 'measure: function_calls'"),
    (f"{M}{{measure: function_calls}}\n", "6:5: a metric needs the key 'calls'"),
    (f"{M}{{measure: function_calls, calls: [{{args: {{}}}}]}}\n", "6:39: a call needs the key 'name'"),
    (f"{M}{{measure: turns, max_value: 1}}\n  - {{measure: turns, max_value: 2}}\n", "7:5: .* twice, first in line 6"),
]


@pytest.mark.parametrize(("text", "expected"), FAULTS, ids=[expected[:40] for _, expected in FAULTS])
def test_faults(fault: Fault, text: str, expected: str) -> None:
    """Errors in a file are refused, at their line and column."""
    assert re.match(f"calls.yaml:{expected.replace('?', '[?]')}", found := fault(text)), found
    assert "\n" not in found


def test_too_many_scenarios(fault: Fault) -> None:
    """A file has 1,000 scenarios at most, and a scenario as many turns."""
    many = "".join(f"  - name: s{number}\n" for number in range(1001))
    assert fault(f"name: a\nturns: []\nscenarios:\n{many}") == "calls.yaml:1004:5: more than 1000 scenarios"
    assert fault("name: a\nturns:\n" + "  - {}\n" * 1001) == "calls.yaml:1003:5: more than 1000 turns"


def test_what_each_scenario_inherits_counts(fault: Fault) -> None:
    """A thousand scenarios with a thousand turns each are too much, though the file is small."""
    entries = "".join(f"  - name: s{number}\n" for number in range(1000))
    found = fault("name: a\nturns: [" + "{}, " * 1000 + f"]\nscenarios:\n{entries}")
    assert "more than 100000 nodes" in found
