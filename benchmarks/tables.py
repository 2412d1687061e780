"""The rows of the page: each is a figure of a scenario, and most have a target."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class Row:
    """A figure of a scenario.

    Attributes:
        words: the description.
        unit: the unit of the figure; "" if the words say it.
        digits: the number of decimals.
        peer: the peer that is judged.
        over: the peer by whose figure it is divided before it is judged; "" if the figure itself is judged.
        least: the least value that meets the target.
        most: the greatest value that meets the target.
        every_round: whether the worst round is judged, and not the median.
    """

    words: str
    scenario: str
    figure: str
    unit: str = ""
    digits: int = 0
    peer: str = "ours"
    over: str = ""
    least: float | None = None
    most: float | None = None
    every_round: bool = False

    @property
    def heading(self) -> str:
        """The description and the unit."""
        return ", ".join(filter(None, (self.words, self.unit)))

    def wanted(self, beside: str) -> str:
        """Return the target in words; "" without one.

        Args:
            beside: the peer that need not be named.
        """
        if self.least is None and self.most is None:
            return ""
        sign, limit = ("≤", self.most) if self.least is None else ("≥", self.least)
        return (
            f"{sign} {limit:g}"
            + (" x" if self.over else "")
            + (f" {self.over}" if self.over not in ("", beside) else "")
            + (" in every round" if self.every_round else "")
        )

    def figure_of(self, values: Sequence[float]) -> float:
        """Return the figure of all rounds that is judged."""
        if self.every_round:
            return max(values) if self.least is None else min(values)
        return statistics.median(values)

    def judge(self, value: float) -> str:
        """Return whether the target is met, or by how much it is missed; "" without a target."""
        if self.least is not None:
            return "met" if value >= self.least else f"missed by {1 - value / self.least:.0%}"
        if self.most is None:
            return ""
        if value <= self.most:
            return "met"
        return f"missed by {value / self.most - 1:.0%}" if self.most else "missed"


@attrs.frozen
class Table:
    """Rows with the same columns.

    Attributes:
        peers: the columns. The first one has the figures of the row's own peer; the second one's figures divide the
            figures of all rows.
    """

    peers: Sequence[str]
    rows: Sequence[Row]


_100: Final = "100 sessions with callbacks"
_500: Final = "500 sessions"

#: The table of `--quick`, shown in the terminal.
QUICK: Final = Table(
    ("ours", "ref", "raw", "picows", "pipecat-pipeline"),
    (
        Row(
            words="short program, instructions",
            unit="millions",
            scenario="instructions",
            figure="millions",
            over="ref",
            most=1.7,
        ),
        Row(words="short program, start to exit", unit="ms", scenario="program", figure="ms", over="ref", most=2),
        Row(
            words="construction and connect",
            unit="ms",
            scenario="connect",
            figure="connect_ms",
            digits=2,
            over="ref",
            most=1.3,
        ),
        Row(words="close p50", unit="ms", scenario="connect", figure="close_ms", digits=2, over="ref", most=2),
        Row(words="event p50, 50/s", unit="µs", scenario="latency-50", figure="p50_us", over="ref", most=1.1),
        Row(words="event p99, 50/s", unit="µs", scenario="latency-50", figure="p99_us", over="ref", most=1.3),
        Row(words="event p50, 1000/s", unit="µs", scenario="latency-1000", figure="p50_us", over="ref", most=1.15),
        Row(
            words=f"{_100}: CPU",
            unit="% of a core",
            scenario="own-audio-100",
            figure="cpu_percent",
            digits=1,
            over="ref",
            most=0.65,
        ),
        Row(
            words=f"{_100}: event p50",
            unit="ms",
            scenario="own-audio-100",
            figure="p50_ms",
            digits=2,
            over="ref",
            most=1.5,
        ),
        Row(
            words=f"{_100}: audio p50",
            unit="ms",
            scenario="own-audio-100",
            figure="audio_p50_ms",
            digits=2,
            most=1,
        ),
        Row(words="events a second, burst", scenario="events", figure="per_second", over="ref", least=2.5),
        Row(words="import of the package", unit="ms", scenario="import", figure="package_ms", digits=1, most=10),
    ),
)

#: The other rows over WebSocket.
FURTHER: Final = Table(
    ("ours", "ref"),
    (
        Row(words="first connect of a process", unit="ms", scenario="connect", figure="first_ms", over="ref", most=4),
        Row(words="request p50", unit="µs", scenario="request", figure="p50_us", over="ref", most=0.95),
        Row(words="end of an answer to `ask()`'s return", unit="µs", scenario="ask", figure="p50_us", most=1000),
        Row(
            words="CPU of `ask()`",
            unit="ms",
            scenario="ask",
            figure="cpu_ms",
            digits=1,
            over="ours-events",
            most=1.4,
        ),
        Row(
            words="events a second, without the extra `speed`",
            scenario="events",
            figure="per_second",
            peer="ours-default",
            over="ref",
            least=1.7,
        ),
        Row(
            words="events a second, by a signal",
            scenario="events",
            figure="per_second",
            peer="ours-signal",
            over="ref",
            least=1.4,
        ),
        Row(words="audio frames a second, down", scenario="audio-down", figure="per_second", over="ref", least=4.5),
        Row(words="audio frames a second, up", scenario="audio-up", figure="per_second"),
        Row(
            words="event p50, busy main thread",
            unit="switch intervals",
            scenario="busy-event",
            figure="p50_intervals",
            digits=2,
            most=2.2,
        ),
        Row(
            words="request p50, busy main thread",
            unit="switch intervals",
            scenario="busy-request",
            figure="p50_intervals",
            digits=2,
            most=2.2,
        ),
        Row(
            words="request given up late by",
            unit="ms",
            scenario="timeouts",
            figure="request_ms",
            digits=2,
            most=2,
        ),
        Row(
            words="connect given up late by",
            unit="ms",
            scenario="timeouts",
            figure="connect_ms",
            digits=2,
            most=2,
        ),
        Row(words="paced audio off its time, p50", unit="µs", scenario="jitter", figure="p50_us", most=50),
        Row(words="paced audio off its time, p99", unit="µs", scenario="jitter", figure="p99_us", most=5000),
        Row(words="CPU of a quiet minute", unit="ms", scenario="quiet", figure="cpu_ms", digits=1, most=1),
        Row(
            words="one talking session: CPU",
            unit="% of a core",
            scenario="sessions-1",
            figure="cpu_percent",
            digits=1,
            over="ref",
            most=1.1,
        ),
        Row(
            words="one talking session: event p50",
            unit="ms",
            scenario="sessions-1",
            figure="p50_ms",
            digits=2,
            over="ref",
            most=1.2,
        ),
        Row(
            words="one talking session: event p99",
            unit="ms",
            scenario="sessions-1",
            figure="p99_ms",
            digits=2,
            over="ref",
            most=1.5,
        ),
        Row(
            words="100 sessions: CPU",
            unit="% of a core",
            scenario="sessions-100",
            figure="cpu_percent",
            digits=1,
            over="ref",
            most=0.5,
        ),
        Row(
            words="100 sessions: worst share of audio in time",
            scenario="sessions-100",
            figure="sound_share",
            digits=3,
            least=0.995,
        ),
        Row(
            words=f"{_100}: event p99",
            unit="ms",
            scenario="own-audio-100",
            figure="p99_ms",
            digits=2,
            over="ref",
            most=0.5,
        ),
        Row(
            words=f"{_100}: worst share of it in time",
            scenario="own-audio-100",
            figure="taken_share",
            digits=3,
            least=0.995,
        ),
        Row(
            words=f"{_500}: worst share of audio in time",
            scenario="sessions-500",
            figure="sound_share",
            digits=3,
            least=0.995,
        ),
        Row(words=f"{_500}: largest gap", unit="ms", scenario="sessions-500", figure="gap_ms", most=60),
        Row(words=f"{_500}: event p99", unit="ms", scenario="sessions-500", figure="p99_ms", digits=2, most=5),
        Row(words=f"{_500}: memory of each", unit="kB", scenario="sessions-500", figure="kb_each", digits=1, most=40),
    ),
)


def _rtc(words: str, scenario: str, figure: str, unit: str = "", digits: int = 0, **target: float | bool | str) -> Row:
    return Row(
        words=words,
        unit=unit,
        scenario=f"webrtc-{scenario}",
        figure=figure,
        digits=digits,
        peer="ours-webrtc",
        **target,  # type: ignore[arg-type]
    )


WEBRTC: Final = Table(
    ("ours-webrtc", "client-js-webrtc"),
    (
        _rtc("connect to ready", "connect", "connect_ms", "ms", 1, over="client-js-webrtc", most=0.6),
        _rtc("echo p50", "echo", "p50_ms", "ms", over="client-js-webrtc", most=0.8),
        _rtc("echo, the slowest", "echo", "most_ms", "ms", most=190),
        _rtc("likeness of the echo", "echo", "correlation", "", 3, least=0.98),
        _rtc("loudness of the echo", "echo", "gain", "", 2, least=0.668),
        _rtc("CPU of a session", "cpu", "cpu_percent", "% of a core", 1, over="client-js-webrtc", most=0.25),
        _rtc("CPU of pictures, in addition", "video", "cpu_percent_more", "% of a core", 1, most=20),
        _rtc("pictures that the bot saw", "video", "seen_share", "share", 3, least=0.97),
        _rtc("pictures that came back", "video", "back_share", "share", 3, least=0.97),
        _rtc("5 % of packets lost: time with sound", "loss-5", "sound_share", "share", 3, least=0.999),
        _rtc("5 % of packets lost: largest gap", "loss-5", "gap_ms", "ms", most=160),
        _rtc("5 % of packets lost: later after a minute", "loss-5", "later_ms", "ms", 1, most=40),
        _rtc("12 sessions: CPU of each", "12", "cpu_percent_each", "% of a core", 1, most=6),
        _rtc("12 sessions: speech sent", "12", "sent_share", "share", 3, least=0.995, every_round=True),
        _rtc("12 sessions: speech heard", "12", "heard_share", "share", 3, least=0.995, every_round=True),
        _rtc("50 connects: memory of each", "connects", "kb_each", "kB", 1, most=50),
        _rtc("the same, second half", "connects", "kb_each_late", "kB", 1, most=25),
    ),
)

#: Name of a table on the page -> the table.
TABLES: Final[dict[str, Table]] = {"quick": QUICK, "further": FURTHER, "webrtc": WEBRTC}
