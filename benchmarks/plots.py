"""The plots of the page; equal figures give equal files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .peers import PEERS
from .results import Results, median
from .scenarios.many import NUMBERS

_BARS: Final = (
    ("events", "per_second", "events a second"),
    ("audio-down", "per_second", "audio frames a second, down"),
)
_LATENCIES: Final = (
    ("latency-idle", "two a second"),
    ("latency-50", "50 a second"),
    ("latency-1000", "1000 a second"),
)
_COLOURS: Final = {
    "ours": "tab:blue",
    "ours-default": "tab:cyan",
    "ref": "tab:orange",
    "raw": "0.6",
    "websockets": "tab:green",
    "picows": "tab:red",
    "pipecat-session": "tab:purple",
    "pipecat-pipeline": "tab:brown",
}


def draw(results: Results, folder: Path) -> None:
    """Write every plot that has figures."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, fill in PLOTS.items():
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 9}):
            figure = Figure(figsize=(9, 4), layout="constrained")
            fill(figure, results)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})


def throughput(figure: Figure, results: Results) -> None:
    """Draw the throughput of each peer."""
    for axes, (scenario, name, words) in zip(_row(figure, len(_BARS)), _BARS, strict=True):
        found = {peer: median(results.rounds, scenario, peer, name) for peer in reversed(PEERS)}
        peers = [peer for peer, value in found.items() if value is not None]
        values = [value for value in found.values() if value is not None]
        bars = axes.barh(peers, values, color=[_COLOURS.get(peer, "tab:gray") for peer in peers])
        axes.bar_label(bars, [f"{value / 1000:,.1f} k" for value in values], padding=3)
        axes.margins(x=0.2)
        axes.set_xlabel(words)


def latency(figure: Figure, results: Results) -> None:
    """Draw the latency from server to handler: the median, and a line to the 99th percentile if events suffice."""
    for axes, (scenario, words) in zip(_row(figure, len(_LATENCIES)), _LATENCIES, strict=True):
        for peer in reversed(PEERS):
            p50, p99 = (median(results.rounds, scenario, peer, name) for name in ("p50_us", "p99_us"))
            if p50 is not None and p99 is not None:
                if scenario != "latency-idle":
                    axes.plot([p50, p99], [peer, peer], "-|", color=_COLOURS.get(peer, "tab:gray"))
                axes.plot([p50], [peer], "o", color=_COLOURS.get(peer, "tab:gray"))
        axes.set_xscale("log")
        axes.grid(axis="x", alpha=0.3)
        axes.set_xlabel(f"µs, {words}")


def sessions(figure: Figure, results: Results) -> None:
    """Draw CPU and age of events by the number of sessions."""
    for axes, (name, words) in zip(
        _row(figure, 2, share=False), (("cpu_percent", "CPU, % of a core"), ("p99_ms", "event p99, ms")), strict=True
    ):
        for peer in PEERS:
            found = {number: median(results.rounds, f"sessions-{number}", peer, name) for number in NUMBERS}
            points = [(number, value) for number, value in found.items() if value is not None]
            if points:
                axes.plot(*zip(*points, strict=True), "o-", color=_COLOURS.get(peer), label=peer)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.set_xlabel("sessions")
        axes.set_ylabel(words)
        if axes.lines:
            axes.legend()


def _row(figure: Figure, number: int, *, share: bool = True) -> Sequence[Axes]:
    return figure.subplots(1, number, sharey=share, squeeze=False)[0].tolist()  # type: ignore[no-any-return]


#: Name of a file -> the function that draws it.
PLOTS: Final[dict[str, Callable[[Figure, Results], None]]] = {
    "throughput": throughput,
    "latency": latency,
    "sessions": sessions,
}
