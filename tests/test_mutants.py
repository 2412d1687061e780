"""The runner of mutants, on a package of one module; and the mutants of this package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.machine import ROOT
from tools.mutants import LEAST, Module, Mutant, Outcome, StaleError, find_stale, load, main, mutate, run, summary

TEXT = """\
class Lamp:
    def __init__(self):
        self.is_on = False

    def switch(self):
        self.is_on = not self.is_on

    def reset(self):
        self.is_on = False
"""
TESTS = """\
from lamp import Lamp


def test_a_lamp_is_switched():
    lamp = Lamp()
    lamp.switch()
    assert lamp.is_on
"""
KILLED = 'Mutant("A lamp is on at first.", "self.is_on = False", "self.is_on = True", within="Lamp.__init__"),'
SURVIVES = 'Mutant("A lamp is not reset.", "self.is_on = False", "pass", within="Lamp.reset"),'
HANGS = 'Mutant("A switch hangs.", "self.is_on = not self.is_on", "while True: pass"),'
STALE = 'Mutant("A lamp blinks.", "self.blinks = False", "self.blinks = True"),'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree with a module, its test, and no mutants."""
    root = tmp_path / "lamps"
    (root / "tests/mutants").mkdir(parents=True)
    (root / "lamp.py").write_text(TEXT)
    (root / "tests/test_lamp.py").write_text(TESTS)
    return root


def give(tree: Path, *mutants: str, name: str = "lamp", tests: str = "tests/test_lamp.py") -> dict[str, Module]:
    """Write mutants, and return the loaded modules."""
    lines = [
        "from tools.mutants import Module, Mutant",
        f"MODULE = Module('lamp.py', ({tests!r},), (",
        *mutants,
        "))",
    ]
    (tree / f"tests/mutants/{name}.py").write_text("\n".join(lines))
    return load(tree)


@pytest.mark.matrix
def test_mutants_are_killed_and_survive(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mutant that no test sees survives and is named; too few killed fail the run; the tree is as before."""
    give(tree, KILLED, SURVIVES)

    assert main(["-j2"], tree) == 1

    printed = capsys.readouterr().out.splitlines()
    survived, killed = sorted(printed[:2])  # each is told at once
    assert survived.startswith("lamp: A lamp is not reset. SURVIVED (")
    assert killed.startswith("lamp: A lamp is on at first. killed by tests/test_lamp.py::test_a_lamp_is_switched (")
    assert printed[2:] == [
        "lamp: 1 of 2 killed",
        "survived: lamp: A lamp is not reset.",
        f"1 of 2 mutants killed, 50.0 %, at least {LEAST} %",
    ]
    assert (tree / "lamp.py").read_text() == TEXT


@pytest.mark.matrix
def test_a_mutant_that_hangs_is_killed(tree: Path) -> None:
    """A mutant whose tests do not end counts as killed when its limit has passed."""
    (outcome,) = run(tree, give(tree, HANGS), limit_seconds=0.5)

    assert isinstance(outcome, Outcome)
    assert outcome.killed_by == "a hang"


@pytest.mark.matrix
def test_a_stale_mutant_is_an_error_that_names_it(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The runner tests no mutant if the pattern of one does not match."""
    give(tree, KILLED, STALE)

    assert main(["lamp"], tree) == 1

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "lamp: 'A lamp blinks.': its pattern occurs 0 times, not once: 'self.blinks = False'" in printed.err


@pytest.mark.matrix
def test_a_module_that_is_gone_is_stale(tree: Path) -> None:
    """Mutants of a module that was moved are stale."""
    modules = give(tree, KILLED)
    (tree / "lamp.py").rename(tree / "bulb.py")

    assert find_stale(tree, modules) == ["lamp: there is no lamp.py"]


@pytest.mark.parametrize(
    ("mutant", "why"),
    [
        (Mutant("Twice.", "self.is_on = False", "pass"), "occurs 2 times"),
        (Mutant("No Python.", "class Lamp:", "class Lamp"), "no Python"),
        (Mutant("Nothing.", "not self.is_on", "not  self.is_on"), "changes nothing"),
        (Mutant("Nowhere.", "pass", "", within="Lamp.blink"), "there is no Lamp.blink"),
        (Mutant("Elsewhere.", "not self.is_on", "False", within="Lamp.reset"), "occurs 0 times"),
    ],
)
def test_a_pattern_that_cannot_be_applied(mutant: Mutant, why: str) -> None:
    """A mutant changes one place of the module, and its result is Python of another meaning."""
    with pytest.raises(StaleError, match=why):
        mutate(TEXT, mutant)


@pytest.mark.matrix
def test_tests_that_do_not_pass_judge_no_mutant(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run whose tests fail without a mutant fails and says so."""
    give(tree, KILLED)
    (tree / "tests/test_lamp.py").write_text(TESTS.replace("assert lamp", "assert not lamp"))

    assert main([], tree) == 1
    assert "lamp.py: its tests do not pass without a mutant" in capsys.readouterr().out


@pytest.mark.matrix
def test_a_module_without_mutants_is_named(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown name is an error that lists the known ones."""
    give(tree, KILLED)

    assert main(["bulb"], tree) == 2
    assert "There are no mutants of 'bulb'; there are some of lamp" in capsys.readouterr().err


def test_known_survivors_are_listed_with_their_reason() -> None:
    """The summary lists the killed mutants by module, and why a survivor is known."""
    known = Mutant("It hums.", "a", "b", reason="no test hears it")
    outcomes = [Outcome("lamp", Mutant("It is dark.", "a", "b"), "a test", 1.0)] * 6
    lines, is_enough = summary([*outcomes, Outcome("bulb", known, "", 1.0)])

    assert lines == [
        "lamp: 6 of 6 killed",
        "bulb: 0 of 1 killed",
        "survived: bulb: It hums. (known: no test hears it)",
        f"6 of 7 mutants killed, 85.7 %, at least {LEAST} %",
    ]
    assert is_enough
    assert not summary([*outcomes[:5], Outcome("bulb", known, "", 1.0)])[1]


@pytest.mark.matrix
def test_the_mutants_of_this_package_match_their_modules() -> None:
    """No mutant in `tests/mutants` is stale: each pattern occurs once in its module, and the change has an effect."""
    assert find_stale(ROOT, load(ROOT)) == []


@pytest.mark.matrix
@pytest.mark.timeout(3 * 3600)
def test_the_tests_of_this_package_see_its_mutants() -> None:
    """At least 85 % of the mutants in `tests/mutants` are killed, and none is stale."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutants"], cwd=ROOT, capture_output=True, text=True, timeout=3 * 3600
    )
    assert done.returncode == 0, done.stdout + done.stderr
