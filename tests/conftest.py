"""The rules for every test: no thread of the package and no descriptor outlives it, and there are no sound devices.
Also fixtures that all tests may use."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pkgutil
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import hypothesis
import pytest

from tests.support import slowness, warm
from tests.support.client_fixtures import client, server  # noqa: F401 - fixtures
from tests.support.installed import install_wheel
from tests.support.threads import open_descriptors, package_threads
from tools.results import VARIABLE

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
# The same examples each time, for `.ci/run`: a change is blamed for its own failures only. Other runs search at random.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
# The runner of mutants needs no smallest example, which takes most of a minute to find.
phases = [phase for phase in hypothesis.Phase if phase not in (hypothesis.Phase.shrink, hypothesis.Phase.explain)]
hypothesis.settings.register_profile("unshrunk", deadline=None, phases=phases)
hypothesis.settings.load_profile(os.environ.get("RTVI_TEST_HYPOTHESIS", "default"))

# Nothing is heard and nothing recorded on this machine: a client without devices of the test's own finds none. It is
# said before anything imports PyAudio, and to the processes that tests start too. tests/audio brings its devices along.
_NO_DEVICES = Path(__file__).with_name("no_devices")
os.environ["ALSA_CONFIG_PATH"] = str(_NO_DEVICES / "asound.conf")
os.environ["PULSE_CLIENTCONFIG"] = str(_NO_DEVICES / "pulse-client.conf")
os.environ["JACK_DEFAULT_SERVER"] = "none"
os.environ.pop("PULSE_SERVER", None)  # it would count for more than the file


# A shell without job control starts a command in the background with SIGINT ignored, and so do all its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Start the clock of `tests.support.slowness` for all processes that share the tests."""
    slowness.metronome()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Run tests that share servers in the same process, unless `--dist` says otherwise."""
    if config.getoption("dist") != "load":
        return None
    from tests.support.spread import ByGroup

    return ByGroup(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes, put the longest groups first, and repeat failed tests of real parts twice.

    A real bot that is short of processor time may not hear the end of a sentence.
    """
    if hasattr(config, "workerinput"):
        if config.getoption("reruns", None):
            for item in items:
                if item.get_closest_marker("real") is not None:
                    item.add_marker(pytest.mark.flaky(reruns=2))
        from tests.support.spread import begin_of

        items.sort(key=lambda item: begin_of(item.nodeid))


@pytest.fixture(scope="session", autouse=True)
def warm_python() -> None:
    """Start the warm Python, so that its descriptors belong to no test."""
    warm.start()


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of an environment that has the package's wheel and no extra."""
    return install_wheel(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Keep the present objects out of later garbage collections, which would look at them after every test.

    Modules loaded while their tests run make a collection thirty times as long in the end.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread of the package, a socket, a pipe or an epoll instance behind."""
    threads_before, descriptors_before = package_threads(), open_descriptors()
    yield

    def left() -> tuple[set[threading.Thread], dict[str, str]]:
        descriptors = {n: t for n, t in open_descriptors().items() if descriptors_before.get(n) != t}
        return package_threads() - threads_before, descriptors

    threads, descriptors = left()
    if threads or descriptors:  # a collection each time would take as long as all tests together
        gc.collect()
        threads, descriptors = left()
    if not threads and not descriptors:
        return
    # Other parties of the test (a server's thread, the kernel) may need a moment to be gone; the package may not.
    with slowness.Stopwatch() as watch:
        while watch.look().given < 2.0:
            for thread in threads:
                with contextlib.suppress(RuntimeError):  # it is about to start
                    thread.join(0.05)
            threading.Event().wait(0.02)
            gc.collect()
            threads, descriptors = left()
            if not threads and not descriptors:
                return
    pytest.fail(f"left behind: threads {[t.name for t in threads]}, descriptors {descriptors}")


# Tables in the summary of the test run. Tests may run in several processes: their counts travel with their reports to
# the process that prints.

_PROPERTY = "table"
#: By the name of the function that makes the lines: the sum of all tests' counts.
_tables: defaultdict[str, Counter[Any]] = defaultdict(Counter)


_Tell = Callable[[Counter[Any]], Iterable[str]]


@pytest.fixture
def show_table(request: pytest.FixtureRequest) -> Callable[[_Tell, Counter[Any]], None]:
    """Return `show_table(tell, counts)`, which adds to a table that the summary of the test run shows.

    `tell` is a function at the top of a module. It gets the sum of the counts that all tests gave with it, and returns
    the lines to print. The keys of `counts` are strings, numbers, or tuples of them.
    """

    def show(tell: _Tell, counts: Counter[Any]) -> None:
        name = f"{tell.__module__}:{tell.__qualname__}"
        request.node.user_properties.append((_PROPERTY, (name, list(counts.items()))))

    return show


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep a test's counts for a table; each of its three reports has them."""
    if report.when == "teardown":
        for kind, value in report.user_properties:
            if kind == _PROPERTY:
                name, counts = cast("tuple[str, list[tuple[Any, int]]]", value)
                _tables[name].update(dict(counts))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables, and write the counts for `run.py` to the file that it has named."""
    if file := os.environ.get(VARIABLE):
        stats = terminalreporter.stats
        reasons = (report.longrepr[2].removeprefix("Skipped: ") for report in stats.get("skipped", ()))
        failed = sum(len(stats.get(kind, ())) for kind in ("failed", "error"))
        told = {"passed": len(stats.get("passed", ())), "failed": failed, "skipped": Counter(reasons)}
        Path(file).write_text(json.dumps(told), encoding="utf-8")
    for name, counts in sorted(_tables.items()):
        for line in pkgutil.resolve_name(name)(counts):
            terminalreporter.write_line(line)
