"""Limits of the package that tests shorten: the one place that knows where each of them is."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

# The plain name of each limit, and where the package has it. All are in seconds.
_PLACES = {
    "teardown": "rtvi_sync.session.limits.TEARDOWN_LIMIT",  # what `disconnect()` promises
    "stop": "rtvi_sync.session.limits.STOP_TIMEOUT",  # how long it waits for an attempt that it has stopped
    "exit": "rtvi_sync.concurrency.lifecycle.EXIT_LIMIT",  # what the exit of the interpreter waits for all sessions
    "idle_worker": "rtvi_sync.concurrency.worker_pool.IDLE_TIMEOUT",  # how long a thread without work stays
    "contract": "rtvi_sync.testing.transport_contract.LIMIT",  # how long the contract of transports waits
    "contract_rig": "rtvi_sync.testing.contract_rig.LIMIT",
    "contract_settle": "rtvi_sync.testing.transport_contract._SETTLE",  # how long it waits for what must not stay
}


def change(**limits: Any) -> dict[str, Any]:
    """Change limits for good, in a process of its own; return what they were."""
    before = {}
    for name, value in limits.items():
        module_name, _, constant = _PLACES[name].rpartition(".")
        module = importlib.import_module(module_name)
        before[name] = getattr(module, constant)
        setattr(module, constant, value)
    return before


@contextlib.contextmanager
def changed(**limits: Any) -> Iterator[None]:
    """Change limits in the block, or for the test whose fixture this is."""
    before = change(**limits)
    try:
        yield
    finally:
        change(**before)
