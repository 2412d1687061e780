"""An output that is updated from other threads."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import IPython
import IPython.display
import pytest
from IPython.core.displaypub import DisplayPublisher

from rtvi_sync.notebook import live
from rtvi_sync.notebook.live import INTERVAL, LiveOutput
from tests.support.limits import changed
from tests.support.slowness import GUARD, takes
from tests.support.strikes import Strikes, needs_timers
from tests.support.threads import running
from tests.support.waiting import until

pytestmark = pytest.mark.inside


class Kernel:
    """Replaces IPython's shell in a kernel: records published data, and the functions to call after each cell."""

    def __init__(self) -> None:
        self.display_pub: Any = self
        self.events = self
        self.after_cell: list[Callable[[object], None]] = []
        self.published: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.threads: list[str] = []
        self.failing = False

    def publish(self, data: dict[str, str], **options: Any) -> None:
        """Record a message, or fail."""
        self.threads.append(threading.current_thread().name)
        if self.failing:
            raise OSError("the kernel is gone")
        self.published.append((data, options))

    def register(self, event: str, function: Callable[[object], None]) -> None:
        """Record a function."""
        assert event == "post_run_cell"
        self.after_cell.append(function)

    def unregister(self, event: str, function: Callable[[object], None]) -> None:
        """Remove a function."""
        self.after_cell.remove(function)


class State:
    """The output's content: a number."""

    number = 0

    def render(self) -> dict[str, str]:
        """Return the content."""
        return {"text/plain": str(self.number)}


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Replace IPython's shell of this process."""
    made = Kernel()
    monkeypatch.setattr(IPython, "get_ipython", lambda: made)
    monkeypatch.setattr(IPython.display, "publish_display_data", made.publish)
    return made


def test_a_thousand_changes_are_few_updates_and_the_last_is_never_lost(kernel: Kernel) -> None:
    """The output is replaced where it was shown, at most ten times a second, from a thread of the package."""
    state = State()
    output = LiveOutput(state.render)
    output.show()
    began = time.monotonic()
    while time.monotonic() < began + 3.5 * INTERVAL:
        state.number += 1
        output.notify_changed()
    output.flush()
    (first, shown), *updates = kernel.published
    assert first == {"text/plain": "0"}
    assert set(shown) == {"transient"}
    assert all(options == {**shown, "update": True} for _, options in updates)
    assert 2 <= len(updates) <= 5
    assert updates[-1][0] == {"text/plain": str(state.number)}
    assert all(name.startswith("rtvi-notebook-") for name in kernel.threads[1:])


def test_one_change_is_published_without_a_flush(kernel: Kernel) -> None:
    """An update does not wait for the end of an interval or for another event."""
    seen = threading.Event()

    def render() -> dict[str, str]:
        seen.set()
        return {"text/plain": ""}

    output = LiveOutput(render)
    output.show()
    seen.clear()
    output.notify_changed()
    assert seen.wait(GUARD)
    output.flush()


def test_each_cell_ends_with_the_last_state(kernel: Kernel) -> None:
    """Programs that execute notebooks store a cell's outputs as they are when it ends."""
    state = State()
    output = LiveOutput(state.render)
    output.show()
    output.show()
    output.notify_changed()
    state.number = 7
    output.notify_changed()
    (after,) = kernel.after_cell
    after(None)
    assert kernel.published[-1][0] == {"text/plain": "7"}


def test_a_collected_output_leaves_nothing_behind(kernel: Kernel) -> None:
    """An output without references is collected, and cells no longer call it."""
    output = LiveOutput(State().render)
    output.show()
    gone = weakref.ref(output)
    del output
    gc.collect()
    assert gone() is None
    assert kernel.after_cell == []


def test_a_terminal_shows_it_once(kernel: Kernel) -> None:
    """IPython in a terminal cannot replace its output."""
    kernel.display_pub = DisplayPublisher()
    output = LiveOutput(State().render)
    output.show()
    output.notify_changed()
    output.flush()
    assert [options for _, options in kernel.published] == [{}]
    assert kernel.after_cell == []


def test_a_change_while_it_is_shown_for_the_first_time(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change during the first rendering is published after it, even if it is the last one."""
    state = State()
    output = LiveOutput(state.render)

    def publish_late(data: dict[str, str], **options: Any) -> None:
        kernel.publish(data, **options)
        if "update" not in options:
            state.number += 1
            output.notify_changed()

    monkeypatch.setattr(IPython.display, "publish_display_data", publish_late)
    output.show()
    until(lambda: len(kernel.published) > 1)
    output.flush()
    assert [data["text/plain"] for data, _ in kernel.published] == ["0", "1"]


def test_another_cell_shows_it_while_an_update_waits(kernel: Kernel) -> None:
    """The first cell still gets the update: the output of another cell does not change it."""
    state = State()
    output = LiveOutput(state.render)
    output.show()
    for _ in range(2):  # the second change waits for the interval after the first
        state.number += 1
        output.notify_changed()
        until(lambda: len(kernel.published) > 1)
    output.show()
    output.flush()
    updates = [data["text/plain"] for data, options in kernel.published if "update" in options]
    assert updates[-1] == "2"


def test_before_it_is_shown_nothing_is_published(kernel: Kernel) -> None:
    """An output that is never shown has no thread and no message."""
    output = LiveOutput(State().render)
    output.notify_changed()
    output.flush()
    assert kernel.threads == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_update_does_not_stop_later_ones(kernel: Kernel) -> None:
    """The next change is published after a failed one."""
    output = LiveOutput(State().render)
    output.show()
    kernel.failing = True
    output.notify_changed()
    output.flush()
    kernel.failing = False
    output.notify_changed()
    output.flush()
    assert len(kernel.published) == 2


def test_a_flush_is_bounded(kernel: Kernel) -> None:
    """A front end that reads nothing blocks a flush for at most its timeout."""
    going_on = threading.Event()
    output = LiveOutput(lambda: {"text/plain": str(going_on.wait(GUARD))})
    going_on.set()
    output.show()
    going_on.clear()
    output.notify_changed()
    with changed(notebook_flush=0.1), takes(2, at_least=0.05):
        output.flush()
    going_on.set()


def test_an_interpreter_that_starts_no_more_threads(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ends at exit updates nothing, and does not fail."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(live, "start_thread", refuse)
    output = LiveOutput(State().render)
    output.show()
    output.notify_changed()
    output.flush()
    assert len(kernel.published) == 1


@needs_timers
def test_ctrl_c_at_many_instants_stops_no_update(kernel: Kernel) -> None:
    """The cell that shows the output, and the wait for its last state, leave no other thread waiting."""
    state = State()
    output = LiveOutput(state.render)
    output.show()
    changes = True

    def change() -> None:
        while changes:
            output.notify_changed()
            threading.Event().wait(0.001)

    def run_cell() -> None:
        output.show()
        kernel.after_cell[0](None)

    with running(change) as changed_at_last, Strikes() as strikes:
        for number in range(1000):
            strikes.strike(run_cell)
            if number % 50 == 0:
                with running(output.notify_changed) as outcome:
                    outcome.get(timeout=GUARD)
        changes = False
        changed_at_last.get(timeout=GUARD)
    state.number = 7
    output.notify_changed()
    until(lambda: kernel.published[-1][0] == {"text/plain": "7"})
