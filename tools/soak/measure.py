"""The resources of the process over time, and whether they grow."""

from __future__ import annotations

import csv
import gc
import math
import os
import stat
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import attrs
import psutil

# The fraction of the whole time in which caches and pools fill.
WARM_UP: Final = 0.2
# The fraction by which memory may grow after the warm-up.
GROWTH_LIMIT: Final = 0.01
#: Python takes memory for small objects by arenas of this many bytes. One more may be taken at any time, and in the
#: middle of the run that raises the line by one and a half of it, and noise.
ARENA: Final = 2**20
# glibc's HEAP_MAX_SIZE on 64-bit systems.
_HEAP_BYTES: Final = 1 << 26
# Fewer samples than these say nothing about memory.
_FEWEST: Final = 10


@attrs.frozen(kw_only=True)
class Sample:
    """The resources at one time.

    Attributes:
        seconds: since the start.
        moment: "quiet": no session was live and the garbage was collected; "live".
        round: the number of the round.
        rss_bytes: the resident memory of the process. In quiet moments the C library has released its unused memory.
        outside_bytes: the part of it outside the C library's heaps: Python's small objects, stacks, code.
        heap_bytes: memory that was allocated from the C library and not freed.
        blocks: memory blocks of Python objects.
        fds: open descriptors.
        sockets: the descriptors that are sockets.
        threads: the threads of the process.
        gc_objects: objects that the garbage collector tracks; 0 in live moments.
        sessions, calls, faults: their numbers so far.
    """

    seconds: float = attrs.field(converter=float)
    moment: Literal["quiet", "live"]
    round: int = attrs.field(converter=int)
    rss_bytes: int = attrs.field(converter=int)
    outside_bytes: int = attrs.field(converter=int)
    heap_bytes: int = attrs.field(converter=int)
    blocks: int = attrs.field(converter=int)
    fds: int = attrs.field(converter=int)
    sockets: int = attrs.field(converter=int)
    threads: int = attrs.field(converter=int)
    gc_objects: int = attrs.field(converter=int)
    sessions: int = attrs.field(converter=int)
    calls: int = attrs.field(converter=int)
    faults: int = attrs.field(converter=int)


class Recorder:
    """A writer of samples to a CSV file. It keeps none, because it must not grow itself."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", newline="", encoding="utf-8")
        self._rows = csv.DictWriter(self._file, [field.name for field in attrs.fields(Sample)])
        self._rows.writeheader()
        self._began = time.monotonic()
        self._process = psutil.Process()
        # Guards the file. The sampling thread and the main thread hold it for one sample.
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._began

    def sample(self, moment: Literal["quiet", "live"], round_: int, sessions: int, calls: int, faults: int) -> None:
        """Write a sample."""
        with self._lock:
            if moment == "quiet":
                psutil.heap_trim()
            heap = psutil.heap_info()
            seen = Sample(
                seconds=round(self.seconds, 1),
                moment=moment,
                round=round_,
                rss_bytes=self._process.memory_info().rss,
                outside_bytes=_outside_heaps(self._process),
                heap_bytes=heap.heap_used + heap.mmap_used,
                blocks=sys.getallocatedblocks(),
                fds=self._process.num_fds(),
                sockets=_count_sockets(),
                threads=self._process.num_threads(),
                gc_objects=len(gc.get_objects()) if moment == "quiet" else 0,
                sessions=sessions,
                calls=calls,
                faults=faults,
            )
            self._rows.writerow(attrs.asdict(seen))
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _outside_heaps(process: psutil.Process) -> int:
    """Return RSS without the C library's heaps: the first has a name, the others start at multiples of their size."""
    return sum(
        part.rss
        for part in process.memory_maps(grouped=False)
        if part.path != "[heap]" and (part.path != "[anon]" or int(part.addr.partition("-")[0], 16) % _HEAP_BYTES)
    )


def _count_sockets() -> int:
    count = 0
    for name in os.listdir("/dev/fd"):
        try:
            count += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
        except OSError:  # closed since it was listed
            continue
    return count


def read(path: Path) -> list[Sample]:
    """Return the samples of a file."""
    with path.open(newline="", encoding="utf-8") as file:
        return [Sample(**row) for row in csv.DictReader(file)]  # type: ignore[arg-type]


def settled(samples: Sequence[Sample]) -> list[Sample]:
    """Return the quiet samples after the warm-up."""
    end = samples[-1].seconds if samples else 0.0
    return [sample for sample in samples if sample.moment == "quiet" and sample.seconds >= WARM_UP * end]


@attrs.frozen
class Line:
    """A straight line, fitted to measured values.

    Attributes:
        first, last: its values at the first and the last time.
        uncertainty: the standard error of its growth, as a fraction of `first`.
    """

    first: float
    last: float
    uncertainty: float

    @property
    def growth(self) -> float:
        """The growth from the first to the last time, as a fraction."""
        return self.last / self.first - 1

    @classmethod
    def through(cls, times: Sequence[float], values: Sequence[float]) -> Line:
        """Fit a line by least squares to at least three values."""
        slope, start = statistics.linear_regression(times, values)
        first, last = (start + slope * time_ for time_ in (times[0], times[-1]))
        residue = sum((value - start - slope * time_) ** 2 for time_, value in zip(times, values, strict=True))
        spread = sum((time_ - statistics.fmean(times)) ** 2 for time_ in times)
        error = math.sqrt(residue / (len(times) - 2) / spread) * (times[-1] - times[0])
        return cls(first, last, error / first)


@attrs.frozen
class Verdict:
    """The verdict about one quantity.

    Attributes:
        text: one line.
        good: False fails the soak.
    """

    text: str
    good: bool


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """Return verdicts about the growth of each quantity since the warm-up.

    Memory and objects: the line fitted to all quiet samples must grow by less than `GROWTH_LIMIT`, or by less than one
    more `ARENA` raises it; single samples prove little, because allocators keep freed memory. Unused memory in the C
    library's heaps is part of RSS only, which is reported and not judged. Descriptors, sockets and threads: no quiet
    sample may have more than the first one.
    """
    quiet = settled(samples)
    if not quiet:
        return [Verdict("nothing was measured", False)]
    first, last = quiet[0].rss_bytes, quiet[-1].rss_bytes
    verdicts = [Verdict(f"rss_bytes: {first:,} after the warm-up, {last:,} at the end; not judged", True)]
    for name in ("outside_bytes", "heap_bytes", "blocks", "gc_objects"):
        values = [getattr(sample, name) for sample in quiet]
        if len(values) < _FEWEST:
            verdicts.append(Verdict(f"{name}: {values[-1]:,}; not judged, the run was too short", True))
            continue
        line = Line.through([sample.seconds for sample in quiet], values)
        limit = max(GROWTH_LIMIT, 1.75 * ARENA / line.first) if name == "outside_bytes" else GROWTH_LIMIT
        text = (
            f"{name}: {line.first:,.0f} after the warm-up, {line.last:,.0f} at the end: "
            f"{line.growth:+.2%} ± {line.uncertainty:.2%}, allowed below {limit:.2%}"
        )
        verdicts.append(Verdict(text, line.growth < limit))
    for name in ("fds", "sockets", "threads"):
        counts = [getattr(sample, name) for sample in quiet]
        text = f"{name}: {counts[0]} after the warm-up, at most {max(counts)} later, {counts[-1]} at the end"
        verdicts.append(Verdict(text, max(counts) <= counts[0]))
    return verdicts
