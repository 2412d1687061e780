"""The clock of every limit and timestamp of the package, which tools that replace the clock of tests do not reach.

freezegun and similar tools replace the functions of the module `time`, and every other module's references to them. A
limit on such a clock never passes. This module takes the functions from a second instance of `time`. They are separate
objects, even if this module is imported while the clock is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType


def _second_instance(name: str) -> ModuleType:
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_time = _second_instance("time")

#: Return the seconds of `time.monotonic()`.
monotonic: Callable[[], float] = _time.monotonic
#: Return the seconds of `time.time()`, which also counts while the machine sleeps. time-machine replaces it even here.
wall_time: Callable[[], float] = _time.time
#: Return the seconds of `time.perf_counter()`, which is more exact on Windows before Python 3.13.
perf_counter: Callable[[], float] = _time.perf_counter
