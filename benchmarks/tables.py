"""The tables of the page, their figures, and the targets of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from .scenarios import webrtc
from .scenarios.many import NUMBERS, OWN_AUDIO_NUMBERS


@attrs.frozen
class Row:
    """A figure of a scenario, as a row of a table.

    Attributes:
        words: the description.
        unit: the unit of the figure; "" if the words say it.
        digits: the number of decimals.
        has_ratio: whether its ratio to another peer's is meaningful.
    """

    words: str
    unit: str
    scenario: str
    figure: str
    digits: int = 0
    has_ratio: bool = True

    @property
    def heading(self) -> str:
        """The description and the unit."""
        return ", ".join(filter(None, (self.words, self.unit)))


_OF_MANY: Final = (
    ("CPU", "% of a core", "cpu_percent", 1),
    ("event p50", "ms", "p50_ms", 2),
    ("event p99", "ms", "p99_ms", 2),
    ("largest gap in the audio", "ms", "gap_ms", 0),
    ("events that came in time", "share", "events_share", 3),
    ("audio that arrived in time, of the worst session", "share", "sound_share", 3),
    ("the server itself was late by, at most", "ms", "server_late_ms", 1),
    ("memory of each", "kB", "kb_each", 1),
    ("threads", "", "threads", 0),
)

#: Scenario -> what the minute of audio goes into.
_BURSTS: Final = {
    "burst": "to a function",
    "burst-wav": "into a `WavSink`",
    "burst-sink": "into a sink of one's own",
    "burst-slow-sink": "into one that takes 5 ms a frame",
}

#: Name of a table -> its rows. Each peer that has one of the figures is a column.
TABLES: Final[dict[str, Sequence[Row]]] = {
    "session": (
        Row("connect to ready", "ms", "connect", "connect_ms", 2),
        Row("the client made again and connected, audio to a function", "ms", "connect-again", "ms", 2),
        Row("the first connect of a process", "ms", "connect", "first_ms", 2),
        Row("close", "ms", "connect", "close_ms", 2),
        Row("request p50", "µs", "request", "p50_us"),
        Row("request p99", "µs", "request", "p99_us"),
        Row("after the bot's last message the answer is there, p50", "µs", "ask", "p50_us"),
        Row("CPU of a question and its answer", "ms", "ask", "cpu_ms", 1),
        Row("event p50, two a second", "µs", "latency-idle", "p50_us"),
        Row("event p50, 50 a second", "µs", "latency-50", "p50_us"),
        Row("event p99, 50 a second", "µs", "latency-50", "p99_us"),
        Row("event p50, 1000 a second", "µs", "latency-1000", "p50_us"),
        Row("event p99, 1000 a second", "µs", "latency-1000", "p99_us"),
        Row("event p50, busy main thread", "switch intervals", "busy-event", "p50_intervals", 2),
        Row("event p99, busy main thread", "switch intervals", "busy-event", "p99_intervals", 2),
        Row("request p50, busy main thread", "switch intervals", "busy-request", "p50_intervals", 2),
        Row("request p99, busy main thread", "switch intervals", "busy-request", "p99_intervals", 2),
        Row("events a second", "", "events", "per_second"),
        Row("CPU of an event", "µs", "events", "cpu_us", 1),
        Row("audio frames a second, down", "", "audio-down", "per_second"),
        Row("audio frames a second, up", "", "audio-up", "per_second"),
        Row("CPU of an audio frame, up", "µs", "audio-up", "cpu_us", 1),
        Row("a minute of audio at once, until the application has it", "ms", "burst", "ms", 1),
        *(
            Row(f"{words}, {into}", unit, scenario, figure, digits, has_ratio=False)
            for scenario, into in _BURSTS.items()
            for words, unit, figure, digits in (
                ("its part that came bit exact and in order", "share", "kept_share", 3),
                ("memory for it at the peak, of its bytes", "", "memory_ratio", 2),
            )
        ),
        Row("CPU of a minute of talk", "s", "minute", "cpu_seconds", 2),
    ),
    "process": (
        Row("imports", "ms", "import", "ms"),
        Row("memory after them", "MB", "import", "rss_mb"),
        Row("a short program, from start to exit", "ms", "program", "ms"),
        Row("its CPU time", "ms", "program", "cpu_ms"),
        Row("imports beside those of the dependencies", "", "import", "of_dependencies", 2),
        Row("memory with one session", "MB", "quiet", "rss_mb"),
        Row("threads with one session", "", "quiet", "threads"),
        Row("CPU of a quiet minute", "ms", "quiet", "cpu_ms", 1),
        Row("growth over two million events", "MB", "growth", "mb", 2),
        Row("a request is given up late by", "ms", "timeouts", "request_ms", 2),
        Row("connect is given up late by", "ms", "timeouts", "connect_ms", 2),
        Row("paced audio, off its time, p50", "µs", "jitter", "p50_us"),
        Row("paced audio, off its time, p99", "µs", "jitter", "p99_us"),
        Row("paced audio, its drift", "µs", "jitter", "drift_us", has_ratio=False),
        Row("paced audio, drift in ten minutes", "µs", "drift", "drift_us", has_ratio=False),
        Row("the same, off its time, p50", "µs", "drift", "p50_us"),
        Row("the same, off its time, p99", "µs", "drift", "p99_us"),
        Row("system calls in 20 ms of talk", "", "system-calls", "in_20_ms", 1),
    ),
    "many": tuple(
        Row(f"{number} sessions: {words}", unit, f"sessions-{number}", figure, digits)
        for words, unit, figure, digits in _OF_MANY
        for number in NUMBERS
    ),
    "own-audio": tuple(
        Row(f"{number} sessions: {words}", unit, f"own-audio-{number}", figure, digits)
        for words, unit, figure, digits in (
            *_OF_MANY,
            ("audio that the application got in time, of the worst session", "share", "taken_share", 3),
        )
        for number in OWN_AUDIO_NUMBERS
    ),
    "webrtc": (
        Row("connect to ready", "ms", "webrtc-connect", "connect_ms", 1),
        Row("close", "ms", "webrtc-connect", "close_ms", 1),
        Row("echo, p50", "ms", "webrtc-echo", "p50_ms"),
        Row("echo, the slowest", "ms", "webrtc-echo", "most_ms"),
        Row("how alike it is", "", "webrtc-echo", "correlation", 3),
        Row("how loud it is, of what was said", "", "webrtc-echo", "gain", 2),
        Row("CPU of a session, audio both ways", "% of a core", "webrtc-cpu", "cpu_percent", 1),
        Row("CPU of pictures both ways, in addition", "% of a core", "webrtc-video", "cpu_percent_more", 1),
        Row("pictures sent", "in a second", "webrtc-video", "sent_per_second", 1),
        Row("of these the bot saw", "share", "webrtc-video", "seen_share", 3),
        Row("of these came back", "share", "webrtc-video", "back_share", 3),
        *(
            Row(
                f"{100 * share:g} % of the bot's packets lost: {words}",
                unit,
                f"webrtc-loss-{100 * share:g}",
                figure,
                digits,
            )
            for share in webrtc.LOSSES
            for words, unit, figure, digits in (
                ("the time that has sound", "share", "sound_share", 3),
                ("largest gap", "ms", "gap_ms", 0),
                ("how much later all is after a minute", "ms", "later_ms", 1),
                ("sound that was made up", "share", "concealed_share", 3),
            )
        ),
        *(
            Row(f"{number} sessions: {words}", unit, f"webrtc-{number}", figure, digits)
            for number in webrtc.NUMBERS
            for words, unit, figure, digits in (
                ("CPU of each", "% of a core", "cpu_percent_each", 1),
                ("speech that was sent, of the worst session", "share", "sent_share", 3),
                ("speech that was heard, of the worst session", "share", "heard_share", 3),
                ("threads", "", "threads", 0),
            )
        ),
        Row("50 connects: threads left", "", "webrtc-connects", "threads_left", 0),
        Row("50 connects: descriptors left", "", "webrtc-connects", "descriptors_left", 0),
        Row("50 connects: tasks left", "", "webrtc-connects", "tasks_left", 0),
        Row("50 connects: memory of each", "kB", "webrtc-connects", "kb_each", 1),
        Row("50 connects: memory of each, second half", "kB", "webrtc-connects", "kb_each_late", 1),
    ),
}

#: The rows of the table of Python versions.
PYTHON_ROWS: Final = tuple(
    row
    for row in TABLES["session"]
    if (row.scenario, row.figure)
    in {
        ("connect", "connect_ms"),
        ("request", "p50_us"),
        ("latency-1000", "p50_us"),
        ("events", "per_second"),
        ("audio-down", "per_second"),
        ("minute", "cpu_seconds"),
    }
)
PYTHON_PEERS: Final = ("ours", "ours-default", "ref")


@attrs.frozen(kw_only=True)
class Target:
    """The limit of a figure: its least or its greatest value.

    Attributes:
        words: the description.
        over: the peer by whose figure it is divided; "" for the figure itself.
        signed: whether the figure may be negative, and its amount counts.
    """

    words: str
    scenario: str
    figure: str
    peer: str = "ours"
    over: str = ""
    least: float | None = None
    most: float | None = None
    signed: bool = False

    @property
    def wanted(self) -> str:
        """The limit in words."""
        sign, limit = ("≥", self.least) if self.least is not None else ("≤", self.most)
        return f"{sign} {limit:g}" + (f" x {self.over}" if self.over else "")

    def judge(self, value: float) -> str:
        """Return whether the target is met, or by how much it is missed."""
        if self.least is not None:
            return "met" if value >= self.least else f"missed by {1 - value / self.least:.0%}"
        assert self.most is not None
        off = abs(value) if self.signed else value
        if off <= self.most:
            return "met"
        return f"missed by {off / self.most - 1:.0%}" if self.most else "missed"


TARGETS: Final[Sequence[Target]] = (
    Target(words="events a second", scenario="events", figure="per_second", over="ref", least=2.5),
    Target(words="events a second", scenario="events", figure="per_second", over="pipecat-pipeline", least=10),
    Target(words="events a second", scenario="events", figure="per_second", over="client-js", least=150),
    Target(
        words="events a second, without orjson",
        scenario="events",
        figure="per_second",
        peer="ours-default",
        over="ref",
        least=1.7,
    ),
    Target(
        words="events a second, by a signal",
        scenario="events",
        figure="per_second",
        peer="ours-signal",
        over="ref",
        least=1.4,
    ),
    Target(words="audio frames a second, down", scenario="audio-down", figure="per_second", over="ref", least=4.5),
    Target(words="request p50", scenario="request", figure="p50_us", over="ref", most=0.95),
    Target(words="request p50", scenario="request", figure="p50_us", over="pipecat-pipeline", most=0.30),
    Target(words="an answer is there after the bot's last message, µs", scenario="ask", figure="p50_us", most=1000),
    Target(words="CPU of ask()", scenario="ask", figure="cpu_ms", over="ours-events", most=1.4),
    Target(words="event p50, 1000 a second", scenario="latency-1000", figure="p50_us", over="ref", most=1.2),
    Target(words="event p99, 1000 a second", scenario="latency-1000", figure="p99_us", over="ref", most=1.3),
    Target(words="event p50, 1000 a second", scenario="latency-1000", figure="p50_us", over="raw", most=2.6),
    Target(words="connect to ready", scenario="connect", figure="connect_ms", over="ref", most=1.3),
    Target(
        words="connect to ready, the client made again", scenario="connect-again", figure="ms", over="ref", most=1.3
    ),
    Target(words="the first connect of a process", scenario="connect", figure="first_ms", over="ref", most=4),
    Target(words="a short program, from start to exit", scenario="program", figure="ms", over="ref", most=1.5),
    Target(words="close, ms", scenario="connect", figure="close_ms", most=1),
    Target(words="a request is given up late by, ms", scenario="timeouts", figure="request_ms", most=2),
    Target(words="connect is given up late by, ms", scenario="timeouts", figure="connect_ms", most=2),
    Target(words="paced audio, off its time, p50, µs", scenario="jitter", figure="p50_us", most=50),
    Target(words="paced audio, off its time, p99, µs", scenario="jitter", figure="p99_us", most=5000),
    Target(words="paced audio, drift in ten minutes, µs", scenario="drift", figure="drift_us", most=1000, signed=True),
    *(
        Target(words=f"one session: {words}", scenario="sessions-1", figure=figure, over="ref", most=most)
        for words, figure, most in (
            ("CPU", "cpu_percent", 1.1),
            ("event p50", "p50_ms", 1.2),
            ("event p99", "p99_ms", 1.5),
        )
    ),
    *(
        Target(
            words=f"CPU of {number} sessions",
            scenario=f"sessions-{number}",
            figure="cpu_percent",
            over=over,
            most=most,
        )
        for number, over, most in (
            (100, "ref", 0.5),
            (200, "ref", 0.5),
            (100, "picows", 1.8),
            (100, "pipecat-pipeline", 0.15),
        )
    ),
    *(
        Target(
            words=f"{number} sessions with audio of the application's own: {words}",
            scenario=f"own-audio-{number}",
            figure=figure,
            over=over,
            least=least,
            most=most,
        )
        for number in OWN_AUDIO_NUMBERS
        for words, figure, over, least, most in (
            ("CPU", "cpu_percent", "ref", None, 0.65),
            ("event p99", "p99_ms", "ref", None, 0.5),
            ("share of the bots' audio in time", "taken_share", "", 0.995, None),
            ("share of the users' audio in time", "sound_share", "", 0.995, None),
            ("threads", "threads", "", None, 12),
        )
    ),
    *(
        Target(
            words=f"a minute of audio at once {into}: {words}",
            scenario=scenario,
            figure=figure,
            least=least,
            most=most,
        )
        for scenario, into in _BURSTS.items()
        for words, figure, least, most in (
            ("share of it", "kept_share", 1, None),
            ("memory, of its bytes", "memory_ratio", None, 1.84),  # 1.3 of its bytes and 1 MiB
        )
    ),
    *(
        Target(words=f"500 sessions: {words}", scenario="sessions-500", figure=figure, least=least, most=most)
        for words, figure, least, most in (
            ("share of the audio in time", "sound_share", 0.995, None),
            ("share of the events in time", "events_share", 0.995, None),
            ("largest gap, ms", "gap_ms", None, 60),
            ("event p99, ms", "p99_ms", None, 5),
            ("threads of each more", "threads_each", None, 0.1),
            ("memory of each, kB", "kb_each", None, 40),
        )
    ),
    Target(words="CPU of a quiet minute, ms", scenario="quiet", figure="cpu_ms", most=1),
    Target(words="growth over two million events, MB", scenario="growth", figure="mb", most=2),
    Target(words="import beside that of the dependencies", scenario="import", figure="of_dependencies", most=1.5),
    Target(words="event p50, busy main thread, intervals", scenario="busy-event", figure="p50_intervals", most=2.2),
    Target(words="request p50, busy main thread, intervals", scenario="busy-request", figure="p50_intervals", most=2.2),
    *(
        Target(words=words, scenario=f"webrtc-{scenario}", figure=figure, peer="ours-webrtc", over=over, most=most)
        for words, scenario, figure, over, most in (
            ("WebRTC: connect to ready", "connect", "connect_ms", "client-js-webrtc", 0.6),
            ("WebRTC: echo through a real bot", "echo", "p50_ms", "client-js-webrtc", 0.8),
            ("WebRTC: echo through a real bot, ms", "echo", "p50_ms", "", 190),
            ("WebRTC: CPU", "cpu", "cpu_percent", "client-js-webrtc", 0.25),
            ("WebRTC: CPU, % of a core", "cpu", "cpu_percent", "", 10.5),
            ("WebRTC: CPU of each of 12 sessions, % of a core", "12", "cpu_percent_each", "", 6),
            ("WebRTC: CPU of pictures both ways, % of a core", "video", "cpu_percent_more", "", 20),
            ("WebRTC: 1 % lost: largest gap, ms", "loss-1", "gap_ms", "", 100),
            ("WebRTC: 5 % lost: largest gap, ms", "loss-5", "gap_ms", "", 160),
            ("WebRTC: 1 % lost: later after a minute, ms", "loss-1", "later_ms", "", 40),
            ("WebRTC: 5 % lost: later after a minute, ms", "loss-5", "later_ms", "", 40),
            ("WebRTC: 50 connects: threads left", "connects", "threads_left", "", 0),
            ("WebRTC: 50 connects: descriptors left", "connects", "descriptors_left", "", 0),
            ("WebRTC: 50 connects: tasks left", "connects", "tasks_left", "", 0),
            ("WebRTC: 50 connects: memory of each, kB", "connects", "kb_each", "", 50),
        )
    ),
    *(
        Target(words=f"WebRTC: {words}", scenario=f"webrtc-{scenario}", figure=figure, peer="ours-webrtc", least=least)
        for words, scenario, figure, least in (
            ("echo, how alike", "echo", "correlation", 0.98),
            ("1 % lost: the time that has sound", "loss-1", "sound_share", 0.999),
            ("5 % lost: the time that has sound", "loss-5", "sound_share", 0.999),
            ("12 sessions: speech sent", "12", "sent_share", 0.995),
            ("12 sessions: speech heard", "12", "heard_share", 0.995),
            ("pictures that the bot saw", "video", "seen_share", 0.97),
            ("pictures that came back", "video", "back_share", 0.97),
        )
    ),
)
