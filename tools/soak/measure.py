"""What the process has, moment by moment, and whether it grows."""

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

# Of the whole time, the part in which everything finds its size.
WARM_UP: Final = 0.2
# By which memory may have grown from the end of the warm-up to the end, as a fraction.
GROWTH_LIMIT: Final = 0.01
# glibc's HEAP_MAX_SIZE on 64-bit systems.
_HEAP_BYTES: Final = 1 << 26
# Fewer moments than these say nothing about memory.
_FEWEST: Final = 10


@attrs.frozen(kw_only=True)
class Sample:
    """One moment.

    Attributes:
        seconds: since the beginning.
        moment: "quiet": no session was live and the garbage was collected; "live".
        round: number of the round.
        rss_bytes: memory of the process that is in use, as the system sees it. In quiet moments the C library is told
            before to give back what it holds and does not need.
        outside_bytes: the part of it that is in no heap of the C library: Python's small objects, stacks, code.
        heap_bytes: what the process has got from the C library and not given back.
        blocks: pieces of memory that Python's objects have.
        fds: open descriptors.
        sockets: those of them that are sockets.
        threads: of the process.
        gc_objects: objects that the garbage collector knows; 0 in live moments.
        sessions, calls, faults: how many there have been.
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
    """Writes samples to a CSV file, and keeps none: what measures must not grow itself."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", newline="", encoding="utf-8")
        self._rows = csv.DictWriter(self._file, [field.name for field in attrs.fields(Sample)])
        self._rows.writeheader()
        self._began = time.monotonic()
        self._process = psutil.Process()
        # Guards the file. Held for a moment by the thread that samples live moments and by the main thread.
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def sample(self, moment: Literal["quiet", "live"], round_: int, sessions: int, calls: int, faults: int) -> None:
        """Measure now."""
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
    """RSS without the C library's heaps: the first has a name, those of threads begin at multiples of their size."""
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
        except OSError:  # closed meanwhile
            continue
    return count


def read(path: Path) -> list[Sample]:
    """The samples of a file."""
    with path.open(newline="", encoding="utf-8") as file:
        return [Sample(**row) for row in csv.DictReader(file)]  # type: ignore[arg-type]


def settled(samples: Sequence[Sample]) -> list[Sample]:
    """The quiet moments after the warm-up."""
    end = samples[-1].seconds if samples else 0.0
    return [sample for sample in samples if sample.moment == "quiet" and sample.seconds >= WARM_UP * end]


@attrs.frozen
class Line:
    """The straight line that comes nearest to what was measured.

    Attributes:
        first, last: its values at the first and the last moment.
        uncertainty: standard error of its growth, as a fraction of `first`.
    """

    first: float
    last: float
    uncertainty: float

    @property
    def growth(self) -> float:
        """From the first to the last moment, as a fraction."""
        return self.last / self.first - 1

    @classmethod
    def through(cls, times: Sequence[float], values: Sequence[float]) -> Line:
        """By least squares; at least three moments."""
        slope, start = statistics.linear_regression(times, values)
        first, last = (start + slope * time_ for time_ in (times[0], times[-1]))
        residue = sum((value - start - slope * time_) ** 2 for time_, value in zip(times, values, strict=True))
        spread = sum((time_ - statistics.fmean(times)) ** 2 for time_ in times)
        error = math.sqrt(residue / (len(times) - 2) / spread) * (times[-1] - times[0])
        return cls(first, last, error / first)


@attrs.frozen
class Verdict:
    """What was found about one quantity.

    Attributes:
        text: in words, one line.
        good: False fails the soak.
    """

    text: str
    good: bool


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """Whether anything has grown since the warm-up.

    Memory and objects: the straight line through all quiet moments grows by less than 1 %; single moments prove little,
    because an allocator keeps and gives back memory as it likes. What the C library's heaps hold and nothing uses is
    part of RSS alone, which is told and not judged. Descriptors, sockets and threads: no quiet moment has
    more of them than the first one.
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
        text = (
            f"{name}: {line.first:,.0f} after the warm-up, {line.last:,.0f} at the end: "
            f"{line.growth:+.2%} ± {line.uncertainty:.2%}, allowed below {GROWTH_LIMIT:.0%}"
        )
        verdicts.append(Verdict(text, line.growth < GROWTH_LIMIT))
    for name in ("fds", "sockets", "threads"):
        counts = [getattr(sample, name) for sample in quiet]
        text = f"{name}: {counts[0]} after the warm-up, at most {max(counts)} later, {counts[-1]} at the end"
        verdicts.append(Verdict(text, max(counts) <= counts[0]))
    return verdicts
