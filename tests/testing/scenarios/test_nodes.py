"""The values of YAML, included files, and the limits of size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.testing import scenarios
from rtvi_sync.testing.scenarios import Scenario, ScenarioFileError

Load = Callable[..., Sequence[Scenario]]
Fault = Callable[..., str]

H = "name: a\nturns: []\n"


def value_of(found: Sequence[Scenario]) -> Any:
    """Return the value of `v` in the first message of the context."""
    (scenario,) = found
    return scenario.context[0]["v"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("12", 12), ("-3", -3), ("+4", 4), ("0", 0), ("1_000", 1000)),
        *(("012", "012"), ("0x1F", "0x1F"), ("0b1", "0b1"), ("190:20:30", "190:20:30"), ("1e3", "1e3")),
        *(("1.5", 1.5), ("-0.5", -0.5), ("1.0e+3", 1000.0), ("1:30.5", 90.5), ("1_0.5", 10.5)),
        *(("yes", True), ("On", True), ("TRUE", True), ("no", False), ("off", False), ("y", "y")),
        *(("", None), ("~", None), ("null", None), ("''", ""), ("'null'", "null"), ('"12"', "12")),
        *(("!!str 12", "12"), ("!!int 12", 12), ("!!float 1.5", 1.5), ("!!bool yes", True), ("!!null ''", None)),
        *(("!!seq [a]", ["a"]), ("!!map {a: b}", {"a": "b"})),
        *(("[a, [b], {c: d}]", ["a", ["b"], {"c": "d"}]), ("http://host:1/x", "http://host:1/x")),
        ('"\\u00e9 \\U0001F600 \\t"', "é 😀 \t"),
    ],
)
def test_values(load: Load, text: str, value: object) -> None:
    """Values follow YAML 1.1, except that only plain decimals are numbers."""
    found = value_of(load(f"{H}context:\n  - v: {text}\n"))
    assert (found, type(found)) == (value, type(value))


def test_texts_of_several_lines(load: Load) -> None:
    """Block texts keep or fold their lines."""
    assert value_of(load(f"{H}context:\n  - v: |\n      a\n      b\n")) == "a\nb\n"
    assert value_of(load(f"{H}context:\n  - v: >-\n      a\n      b\n")) == "a b"


def test_aliases_and_merges(load: Load) -> None:
    """An alias stands for a value, and `<<` adds keys that a mapping lacks, from the first mapping that has them."""
    text = f"""{H}context:
  - &one {{a: 1, b: 1}}
  - &two {{b: 2, c: 2}}
  - {{v: *one}}
  - {{<<: *one, b: 3}}
  - {{<<: [*one, *two], d: 4}}
  - {{b: 3, <<: *two}}
"""
    (scenario,) = load(text)
    assert scenario.context[2:] == (
        {"v": {"a": 1, "b": 1}},
        {"a": 1, "b": 3},
        {"a": 1, "b": 1, "c": 2, "d": 4},
        {"b": 3, "c": 2},
    )


def test_a_byte_order_mark(load: Load, fault: Fault) -> None:
    """A mark at the start of a file is none of its text."""
    assert load(b"\xef\xbb\xbf" + H.encode())[0].name == "a"
    assert fault(b"\xef\xbb\xbfturns: []").startswith("calls.yaml:1:1:")


# -- includes ---------------------------------------------------------------------------------------------------------


def test_includes(tmp_path: Path) -> None:
    """Paths are relative to the folder of the first file, also in an included one."""
    for folder in ("calls", "shared"):
        (tmp_path / folder).mkdir()
    (tmp_path / "calls" / "model.yaml").write_text("m")
    (tmp_path / "shared" / "eval.yaml").write_text("model: !include model.yaml\n")
    (tmp_path / "shared" / "judge.yaml").write_text("eval: !include ../shared/eval.yaml\n")
    (tmp_path / "shared" / "turns.yaml").write_text("- user: hello\n")
    (tmp_path / "calls" / "a.yaml").write_text(
        f"name: a\njudge: !include '../shared/judge.yaml'\nturns: !include {tmp_path}/shared/turns.yaml\n"
    )
    (scenario,) = scenarios.load(tmp_path / "calls" / "a.yaml")
    assert scenario.judge.eval == {"model": "m"}
    assert scenario.turns[0].user == "hello"


def test_a_file_is_included_twice(load: Load) -> None:
    """A file may be included in several places."""
    found = load(f"{H}context: [{{v: !include x.yaml}}, {{v: !include x.yaml}}]\n", x="&a [1]")
    assert [message["v"] for message in found[0].context] == [[1], [1]]


@pytest.mark.parametrize(
    ("text", "others", "expected"),
    [
        ("judge: !include no.yaml\n", {}, "calls.yaml:3:8: 'no.yaml' cannot be read: No such file or directory"),
        ("judge: !include .\n", {}, "calls.yaml:3:8: '.' cannot be read: it is not a file"),
        ("judge: !include /dev/zero\n", {}, "calls.yaml:3:8: '/dev/zero' cannot be read: it is not a file"),
        ('judge: !include "a\\0b"\n', {}, "calls.yaml:3:8: .* cannot be read: "),
        ("judge: !include\n", {}, "calls.yaml:3:8: !include takes a path"),
        ("judge: !include [a]\n", {}, "calls.yaml:3:8: !include takes a path"),
        ("judge: !include calls.yaml\n", {}, "calls.yaml:3:8: 'calls.yaml' includes itself"),
        (
            "judge: !include j.yaml\n",
            {"j": "modality: text\n\nevl: x\n"},
            r"j.yaml:3:1: 'judge' has no key 'evl'; did you mean 'eval'\? \(included at calls.yaml:3\)",
        ),
        ("judge: !include j.yaml\n", {"j": "- a\n"}, "j.yaml:1:1: 'judge' must be a mapping, not a list .included at"),
        ("judge: !include j.yaml\n", {"j": "a: [\n"}, r"j.yaml:2:1: not valid YAML: .* \(included at calls.yaml:3\)"),
        ("judge: !include j.yaml\n", {"j": "!include k.yaml"}, "j.yaml:1:1: 'k.yaml' cannot be read: .*calls.yaml:3"),
        ("judge: !include j.yaml\n", {"j": "eval: !include j.yaml"}, "j.yaml:1:7: 'j.yaml' includes itself"),
        (
            "judge: !include j.yaml\n",
            {"j": "a: !include k.yaml", "k": "a: !include j.yaml"},
            r"k.yaml:1:4: 'j.yaml' includes itself \(included at j.yaml:1\)",
        ),
        ("context:\n  - <<: !include j.yaml\n", {"j": "a: b\n"}, "j.yaml:1:1: '<<' must be an alias"),
        ("context: [*a]\n", {}, "calls.yaml:3:11: there is no anchor 'a' before this alias"),
    ],
)
def test_faulty_includes(fault: Fault, text: str, others: dict[str, str], expected: str) -> None:
    """A file that cannot be included is a fault at the `!include`; a fault in the file has its position there."""
    assert re.match(expected, found := fault(H + text, **others)), found


def test_a_chain_of_includes(fault: Fault, load: Load) -> None:
    """Sixteen files may include each other."""
    chain = {f"f{number}": f"!include f{number + 1}.yaml" for number in range(16)}
    text = f"{H}context: [{{v: !include f0.yaml}}]\n"
    assert value_of(load(text, **{**chain, "f15": "end"})) == "end"
    assert "f15.yaml:1:1: more than 16 files that include each other" in fault(text, **chain)


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("context: [\n", "4:1: not valid YAML: "),
        ("context:\n\t- a\n", "4:1: not valid YAML: found character .*that cannot start any token"),
        ("context: {a: b\nc: d}: e: f\n", "[34]:[0-9]+: not valid YAML: "),
        ("---\nname: b\n", "[34]:1: a second document"),
        ("context: !!python/object/apply:os.getpid []\n", "3:10: the tag 'tag:yaml.org,2002:python/object/apply:os."),
        ("context: !mine [a]\n", "3:10: the tag '!mine' is not allowed; !include is"),
        ("context: !!binary aGVsbG8=\n", "3:10: the tag 'tag:yaml.org,2002:binary' is not allowed"),
        ("context: !!set {a}\n", "3:10: the tag 'tag:yaml.org,2002:set' is not allowed"),
        ("context: !!map [a]\n", "3:10: the tag 'tag:yaml.org,2002:map' does not fit"),
        ("context: !!seq {a: b}\n", "3:10: the tag 'tag:yaml.org,2002:seq' does not fit"),
        ("context: [{v: !!int 0x1F}]\n", "3:15: the tag 'tag:yaml.org,2002:int' does not fit"),
        ("context: [{v: !!bool maybe}]\n", "3:15: the tag 'tag:yaml.org,2002:bool' does not fit"),
        ("context: [{v: .inf}]\n", "3:15: a number must be finite"),
        ("context: [{v: .NaN}]\n", "3:15: a number must be finite"),
        ("context: [{v: 1.0e+999}]\n", "3:15: a number must be finite"),
        ("context: [{v: 2024-01-01}]\n", "3:15: '2024-01-01' is a date; write it in quotes"),
        ("context: [{v: =}]\n", "3:15: '=' is a sign of YAML; write it in quotes"),
        ("context: [{no: x}]\n", "3:12: a key must be text, not a boolean .*; write it in quotes"),
        ("context: [{? [a] : x}]\n", "3:14: a key must be text, not a list"),
        ("context: [{v: 1, v: 2}]\n", "3:18: the key 'v' is there twice, first in line 3"),
        ("context: [&a {}, {<<: *a, <<: *a}]\n", "3:27: the key '<<' is there twice"),
        ("context: [{<<: 5}]\n", "3:16: '<<' must be an alias of a mapping"),
        ("context: [&a x, &a y]\n", "3:17: a second anchor 'a'"),
        ("context: &a [{v: *a}]\n", "3:18: an alias of a node that contains it"),
        ("# \x07\n", "3:3: a character that YAML does not allow: '.x07'"),
    ],
)
def test_faults(fault: Fault, text: str, expected: str) -> None:
    """Text that is not YAML, or uses YAML that no scenario needs, is refused at its place."""
    assert re.match(f"calls.yaml:(?:{expected})", found := fault(H + text)), found


def test_not_utf_8(fault: Fault) -> None:
    """A file of another encoding is refused at the first byte that shows it."""
    assert fault("name: é\nturns: é\n".encode("latin-1")) == "calls.yaml:1:7: not UTF-8"


# -- hostile files ----------------------------------------------------------------------------------------------------

TENFOLD = "".join(f"  - &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9))
MERGED = "".join(f"  - &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 9))
BLOCKS = "".join(f"{' ' * at}-\n" for at in range(1, 60))
NODES = "more than 100000 nodes, where each alias counts as what it stands for"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"context:\n  - &a0 [x]\n{TENFOLD}", f"calls.yaml:9:25: {NODES}", id="aliases"),
        pytest.param(f"context:\n  - &a0 {{x: y}}\n{MERGED}", f"calls.yaml:9:20: {NODES}", id="merges"),
        pytest.param("context: [&a x" + ", *a" * 200_000 + "]", NODES, id="aliases of little"),
        pytest.param("context: [" + "a," * 400_000 + "]", NODES, id="nodes"),
        pytest.param("context: " + "[" * 200_000, "levels|nesting", id="depth"),
        pytest.param(f"context:\n{BLOCKS}", "53:51: more than 50 levels", id="blocks"),
        pytest.param(
            "context: [" + "".join(f"&a{n} {'[' * 20}{f'*a{n - 1}' if n else 'x'}{']' * 20}, " for n in range(9)) + "]",
            "more than 50 levels",
            id="depth by aliases",
        ),
        pytest.param("context: [{v: " + "9" * 500_000 + "}]", "a number of 500000 characters", id="a long number"),
        pytest.param("context: [{v: " + "1:" * 100_000 + "1.5}]", "a number of 200003 characters", id="sexagesimal"),
        pytest.param("# " + "x" * (1 << 20), "calls.yaml: it has more than 1 MiB", id="bytes"),
        pytest.param("judge: !include big.yaml", "3:8: 'big.yaml' it has more than 1 MiB", id="bytes included"),
        pytest.param(f"context: [{'!include half.yaml, ' * 20}]", "more than 8 MiB together", id="all bytes"),
        pytest.param("context: [!include many.yaml, !include many.yaml]", f"many.yaml:1:.*{NODES}", id="nodes in all"),
    ],
)
def test_what_is_too_much(fault: Fault, text: str, expected: str) -> None:
    """A file is bounded before anything is made of it: no node is made beyond the limits."""
    big, half = "# " + "x" * (1 << 20), "# " + "x" * (1 << 19)
    many = f"[{'a, ' * 60_000}]"
    found = fault(H + text, big=big, half=half, many=many)
    assert re.search(expected, found), found[:1000]


def test_a_merge_of_many(tmp_path: Path) -> None:
    """A merge of as many mappings as a file may have takes no longer than they do; the first of a key counts."""
    many = ", ".join(f"{{k{number}: {number}}}" for number in range(30_000))
    (tmp_path / "calls.yaml").write_text(f"{H}context: [{{<<: [{many}, {{k0: 1, last: 2}}]}}]\n")
    (scenario,) = scenarios.load(tmp_path / "calls.yaml")
    (message,) = scenario.context
    assert (len(message), message["k0"], message["k29999"], message["last"]) == (30_001, 0, 29_999, 2)


def test_the_limits_hold_for_a_folder(tmp_path: Path) -> None:
    """The files of a folder are read together."""
    for number in range(3):
        (tmp_path / f"f{number}.yaml").write_text(f"{H}context: [{{v: [{'a, ' * 40_000}]}}]\n")
    with pytest.raises(ScenarioFileError, match=f"f2.yaml:3:.*{NODES}"):
        scenarios.load(tmp_path)
