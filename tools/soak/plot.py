"""The plot of the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

from .measure import Line, Sample, settled

mpl.use("svg")

from matplotlib import pyplot as plt

# More live samples cannot be distinguished in the plot.
_MOST_POINTS: Final = 300


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Write an SVG: memory and counts over time, in live and quiet moments."""
    quiet, late = [sample for sample in samples if sample.moment == "quiet"], settled(samples)
    live = [sample for sample in samples if sample.moment == "live"]
    live = live[:: len(live) // _MOST_POINTS + 1]
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "soak", "font.size": 9, "axes.grid": True})
    figure, (memory, heap, counts) = plt.subplots(3, sharex=True, figsize=(9, 8), layout="constrained")
    memory.plot(_minutes(live), [s.rss_bytes / 1e6 for s in live], color="0.8", lw=0.6, label="sessions are live")
    memory.plot(_minutes(quiet), [s.rss_bytes / 1e6 for s in quiet], "k.", ms=3, label="no session, garbage collected")
    memory.plot(_minutes(quiet), [s.outside_bytes / 1e6 for s in quiet], "b.", ms=3, label="of it outside of heaps")
    heap.plot(_minutes(quiet), [s.heap_bytes / 1e6 for s in quiet], "b.", ms=3)
    for axes, values in (
        (memory, [s.outside_bytes / 1e6 for s in late]),
        (heap, [s.heap_bytes / 1e6 for s in late]),
    ):
        if len(late) > 2:
            times = _minutes(late)
            line = Line.through(times, values)
            label = f"{line.growth:+.2%} ± {line.uncertainty:.2%} since the warm-up"
            axes.plot([times[0], times[-1]], [line.first, line.last], "r-", lw=1, label=label)
        axes.legend(loc="lower right")
    for name, color in (("fds", "tab:green"), ("sockets", "tab:orange"), ("threads", "tab:purple")):
        counts.plot(_minutes(live), [getattr(s, name) for s in live], color=color, lw=0.4, alpha=0.35)
        counts.plot(_minutes(quiet), [getattr(s, name) for s in quiet], ".", color=color, ms=3, label=f"{name}, quiet")
    counts.legend(loc="upper right")
    memory.set_ylabel("RSS, MB")
    heap.set_ylabel("heap in use, MB")
    counts.set_ylabel("number")
    counts.set_xlabel("minutes")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _minutes(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds / 60 for sample in samples]
