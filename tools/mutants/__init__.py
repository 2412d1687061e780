"""Mutants: small changes of behaviour, each of which a test must see. Standard library only.

The mutants are data in `tests/mutants`, one file for each module, which holds a `Module` named `MODULE`. Each mutant is
applied to a copy of the tree, the tests that should see it run there, and the module is restored.
"""

import ast
import contextlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from queue import SimpleQueue

from tools.machine import print_step

#: The least percentage of mutants that the tests kill.
LEAST = 85
#: The largest number of mutants that are tested at once.
MOST_PROCESSES = 2
#: A mutant hangs if its tests run for longer than this many times their duration without it, and `LIMIT_SECONDS`.
LIMIT_FACTOR = 3.0
LIMIT_SECONDS = 20.0
# Seconds for which a test of a mutant waits for an event (`GUARD` in tests/support/slowness.py), and the profile of
# Hypothesis (tests/conftest.py).
_ENVIRON = {"RTVI_TEST_GUARD": "10", "RTVI_TEST_HYPOTHESIS": "unshrunk"}
# Folders that no test reads: copying them would take long.
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__", ".*_cache", "node_modules", "*.egg-info")
_PYTEST = ("-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:randomly", "-p", "no:cacheprovider")
_SELECTION = ("-m", "not real and not matrix")
# Exit statuses of pytest.
_PASSED, _USAGE_ERROR, _NO_TESTS = 0, 4, 5


class StaleError(Exception):
    """A mutant cannot be applied, because the module has changed. The text says which one, and why."""


class BrokenError(Exception):
    """The tests of a module cannot judge its mutants: they do not pass without one."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    Attributes:
        what: the fault of the changed module, a sentence.
        old: a part of the module's text that occurs once.
        new: the text in its place.
        within: the function or class that holds `old`, as `Class.method`; "": the whole module.
        tests: test files or tests that should see it; (): the module's own.
        reason: why it is known to survive; "": it should be killed.
    """

    what: str
    old: str
    new: str
    within: str = ""
    tests: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Module:
    """The mutants of one module.

    Attributes:
        path: of the module, from the root of the tree.
        tests: test files that should see its mutants, the likeliest first.
        mutants: the changes.
    """

    path: str
    tests: tuple[str, ...]
    mutants: tuple[Mutant, ...]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one mutant.

    Attributes:
        module: the name of the file of data.
        mutant: the change.
        killed_by: the test that saw it, "a hang" or "a crash"; "": none, it survived.
        seconds: how long its tests took.
    """

    module: str
    mutant: Mutant
    killed_by: str
    seconds: float


def load(root: Path, names: Sequence[str] = ()) -> dict[str, Module]:
    """Return the modules with mutants, by name.

    Args:
        root: of the tree.
        names: of files of data; none: all.

    Raises:
        KeyError: There is no such file.
    """
    files = {path.stem: path for path in sorted((root / "tests" / "mutants").glob("[!_]*.py"))}
    return {name: runpy.run_path(str(files[name]))["MODULE"] for name in names or files}


def mutate(text: str, mutant: Mutant) -> str:
    """Return the text of a module with a mutant.

    Raises:
        StaleError: Its pattern does not match once, or the result is no Python.
    """
    begin, end = _extent(text, mutant)
    before, section, after = text[:begin], text[begin:end], text[end:]
    count = section.count(mutant.old)
    if count != 1:
        raise StaleError(f"{mutant.what!r}: its pattern occurs {count} times, not once: {mutant.old!r}")
    changed = before + section.replace(mutant.old, mutant.new) + after
    try:
        is_same = ast.dump(ast.parse(changed)) == _parse(text)[1]
    except SyntaxError as error:
        raise StaleError(f"{mutant.what!r}: the changed module is no Python: {error}") from None
    if is_same:
        raise StaleError(f"{mutant.what!r}: it changes nothing")
    return changed


@lru_cache(maxsize=1)  # of a module, for all its mutants
def _parse(text: str) -> tuple[ast.Module, str]:
    """Return the syntax of a text in a form that is equal for texts of the same meaning."""
    tree = ast.parse(text)
    return tree, ast.dump(tree)


def _extent(text: str, mutant: Mutant) -> tuple[int, int]:
    """Return where the text of `mutant.within` starts and ends."""
    if not mutant.within:
        return 0, len(text)
    body: Sequence[ast.stmt] = _parse(text)[0].body
    found: ast.stmt | None = None
    for name in mutant.within.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in body if isinstance(node, kinds) and node.name == name]
        if not nodes:
            raise StaleError(f"{mutant.what!r}: there is no {mutant.within}")
        found, body = nodes[-1], nodes[-1].body  # behind the getter of a property there may be its setter
    assert found is not None, "a name has one part at least"
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: found.lineno - 1])), sum(map(len, lines[: found.end_lineno]))


def find_stale(root: Path, modules: dict[str, Module]) -> list[str]:
    """Return one line for each mutant that no longer matches its module."""
    stale = []
    for name, module in modules.items():
        path = root / module.path
        if not path.is_file():
            stale.append(f"{name}: there is no {module.path}")
            continue
        text = path.read_text(encoding="utf-8")
        for mutant in module.mutants:
            try:
                mutate(text, mutant)
            except StaleError as error:
                stale.append(f"{name}: {error}")
    return stale


class Copy:
    """A copy of the tree in which one mutant at a time is tested.

    Args:
        root: of the tree.
        folder: gets the copy.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = folder / "tree"
        shutil.copytree(root, self._root, ignore=_NOT_COPIED, symlinks=True)

    def time_tests(self, module: Module) -> float:
        """Return the seconds that the tests of a module take without a mutant.

        Raises:
            BrokenError: They do not pass.
        """
        tests = dict.fromkeys([*module.tests, *(test for mutant in module.mutants for test in mutant.tests)])
        status, output, seconds = self._run_tests([*tests], None)
        if status != _PASSED:
            raise BrokenError(f"{module.path}: its tests do not pass without a mutant:\n{output}")
        return seconds

    def test(self, name: str, module: Module, mutant: Mutant, limit: float) -> Outcome:
        """Apply a mutant, run the tests that should see it, and restore the module.

        Args:
            name: of the module.
            module: holds the mutant.
            mutant: the change.
            limit: seconds after which the tests hang.

        Raises:
            BrokenError: There are no such tests.
        """
        path = self._root / module.path
        text = path.read_text(encoding="utf-8")
        try:
            self._write(path, mutate(text, mutant))
            status, output, seconds = self._run_tests(mutant.tests or module.tests, limit)
        finally:
            self._write(path, text)
        if status in (_USAGE_ERROR, _NO_TESTS):
            raise BrokenError(f"{module.path}: there are no such tests: {' '.join(mutant.tests or module.tests)}")
        killed_by = "" if status == _PASSED else "a hang" if status is None else _failed_test(output)
        return Outcome(name, mutant, killed_by, seconds)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Its bytecode counts as current if the size and the second are the same.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def _run_tests(self, tests: Sequence[str], limit: float | None) -> tuple[int | None, str, float]:
        """Run tests. Return the exit status of pytest, its output, and the seconds; the status of a hang is None."""
        environ = {**os.environ, "PYTHONPATH": str(self._root), **_ENVIRON}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(  # noqa: S603 - the tests of this project
                [sys.executable, *_PYTEST, *_SELECTION, *tests],
                cwd=self._root,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            status: int | None = None
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = child.wait(limit)
            finally:
                # The whole group, because a test may have started programs.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            output.seek(0)
            return status, output.read().decode(errors="replace"), time.monotonic() - began


def _failed_test(output: str) -> str:
    """Return the name of the test that failed."""
    lines = (line.split(" ")[1] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return next(lines, "a crash")


def run(
    root: Path,
    modules: dict[str, Module],
    processes: int = 1,
    tell: Callable[[Outcome], None] = lambda _: None,
    limit_seconds: float = LIMIT_SECONDS,
) -> Iterator[Outcome | BrokenError]:
    """Test all mutants. Yield the outcome of each, in the order of the modules, and the modules whose tests fail.

    Args:
        root: of the tree.
        modules: with the mutants.
        processes: that many mutants at once.
        tell: called with each outcome at once, on any thread.
        limit_seconds: how much longer the tests may take than `LIMIT_FACTOR` times their duration without a mutant.
    """
    with contextlib.ExitStack() as stack:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for _ in range(min(processes, MOST_PROCESSES)):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True))
            copies.put(Copy(root, Path(folder)))

        def test_one(name: str, module: Module, limit: float, mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                outcome = copy.test(name, module, mutant, limit)
            finally:
                copies.put(copy)
            tell(outcome)
            return outcome

        test_each: Callable[..., Iterator[Outcome]] = map
        if copies.qsize() > 1:
            pool = ThreadPoolExecutor(copies.qsize())
            stack.callback(pool.shutdown, cancel_futures=True)
            test_each = pool.map
        for name, module in modules.items():
            try:
                copy = copies.get()
                try:
                    limit = limit_seconds + LIMIT_FACTOR * copy.time_tests(module)
                finally:
                    copies.put(copy)
                yield from test_each(partial(test_one, name, module, limit), module.mutants)
            except BrokenError as error:
                yield error


def summary(outcomes: Sequence[Outcome]) -> tuple[list[str], bool]:
    """Return the closing lines: killed by module, the survivors, and the share; and whether that is large enough."""
    lines = []
    for name in dict.fromkeys(outcome.module for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.module == name]
        lines.append(f"{name}: {sum(bool(outcome.killed_by) for outcome in own)} of {len(own)} killed")
    for outcome in outcomes:
        if not outcome.killed_by:
            why = f" (known: {outcome.mutant.reason})" if outcome.mutant.reason else ""
            lines.append(f"survived: {outcome.module}: {outcome.mutant.what}{why}")
    killed, total = sum(bool(outcome.killed_by) for outcome in outcomes), len(outcomes)
    percent = 100 * killed / total if total else 0.0
    return [*lines, f"{killed} of {total} mutants killed, {percent:.1f} %, at least {LEAST} %"], percent >= LEAST


def main(arguments: Sequence[str], root: Path) -> int:
    """Test the mutants of the modules that the arguments name, of all without any; return the exit status.

    Args:
        arguments: names of files of data; `-j2` tests two mutants at once.
        root: of the tree.
    """
    names = [argument for argument in arguments if argument != "-j2"]
    try:
        modules = load(root, names)
    except KeyError as error:
        print_step(f"There are no mutants of {error}; there are some of {', '.join(load(root))}", sys.stderr)
        return 2
    stale = find_stale(root, modules)
    if stale:
        print_step("\n".join(["Mutants are stale. Fit them to their modules, in tests/mutants:", *stale]), sys.stderr)
        return 1

    def tell(outcome: Outcome) -> None:
        verdict = f"killed by {outcome.killed_by}" if outcome.killed_by else "SURVIVED"
        print_step(f"{outcome.module}: {outcome.mutant.what} {verdict} ({outcome.seconds:.1f} s)")

    results = [*run(root, modules, MOST_PROCESSES if "-j2" in arguments else 1, tell)]
    broken = [result for result in results if isinstance(result, BrokenError)]
    lines, is_enough = summary([result for result in results if isinstance(result, Outcome)])
    print_step("\n".join([*map(str, broken), *lines]))
    return int(bool(broken) or not is_enough)
