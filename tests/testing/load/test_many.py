"""Many sessions in one process: rows, limits, Ctrl-C, and the report."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import InvalidTransportParamsError, RTVIClient, RTVIError, WebSocketTransport
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import BotSession, EmbeddedBot, MeasuredClient, Row, run_many
from tests.support import limits
from tests.support.load_page import sessions_in
from tests.support.loopback import Peer, Server
from tests.support.slowness import GUARD, takes
from tests.support.wavs import tone, write_wav
from tests.support.websocket import Bot, upgrade
from tests.support.websocket_bots import message_frame, text_in

ROOT = Path(__file__).parents[3]


def handle(_: BotSession, message: dict[str, Any]) -> bool:
    return message["type"] == "client-message" and message["data"]["t"] == "never"


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    with EmbeddedBot(handler=handle, replies="No.") as bot:
        yield bot


def ask(client: MeasuredClient) -> None:
    client.send_client_request("order", 7)
    client.send_text("Well?", audio_response=False)
    client.wait_for_answer(GUARD)


def never(client: MeasuredClient) -> None:
    client.send_client_request("never", timeout=None)


def no_thread(monkeypatch: pytest.MonkeyPatch, refused: Callable[[str], bool]) -> None:
    """Make threads of some roles fail to start."""

    start = threading.Thread.start

    def start_some(thread: threading.Thread) -> None:
        if refused(thread.name.removeprefix("rtvi-").rpartition("-")[0]):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)


class TestRunning:
    def test_all_pass(self, bot: EmbeddedBot) -> None:
        """The report has a row for each session, in order, with its measurements; no thread is left."""
        rows: list[Row] = []
        report = run_many(ask, 30, bot.ws_url, spawn_rate=math.inf, on_row=rows.append)
        assert sorted(rows, key=lambda row: row.number) == list(report.rows)
        assert [(row.number, row.outcome, row.error, row.traceback) for row in report.rows] == [
            (number, "passed", None, None) for number in range(30)
        ]
        assert report.failed == ()
        for row in report.rows:
            assert list(row.durations) == ["connect", "request order", "answer first text", "answer complete"]
            assert 0 <= row.began < row.began + row.seconds <= report.seconds
            assert sum(row.durations.values()) - row.durations["answer first text"] <= row.seconds
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("rtvi-scenario")]

    def test_what_was_tested(self, bot: EmbeddedBot) -> None:
        """The report says which bot was tested, how and when, without the token in its URL."""
        report = run_many(ask, 2, f"{bot.ws_url}?token=canary5d1e", spawn_rate=40)
        assert (report.url, report.transport, report.rate) == (bot.ws_url, "websocket", 40)
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", report.date)
        assert "canary" not in report.to_json()
        unreached = run_many(ask, 1, "ws://127.0.0.1:9/ws", spawn_rate=math.inf)
        assert (unreached.url, unreached.transport, unreached.rate) == ("ws://127.0.0.1:9/ws", "", None)

    def test_one_fails(self, bot: EmbeddedBot) -> None:
        """An exception of a scenario, even SystemExit, fails its session only, and its traceback is reported."""
        numbers = iter(range(4))

        def scenario(client: MeasuredClient) -> None:
            number = next(numbers)
            if number == 1:
                client.send_client_request("never", timeout=0.01)
            if number == 2:
                sys.exit("enough\n\x1b[31mred")
            if number == 3:
                raise AssertionError  # as a bare `assert` does

        report = run_many(scenario, 4, bot.ws_url, concurrency=1)
        assert [row.outcome for row in report.rows] == ["passed", "failed", "failed", "failed"]
        first, second, third = report.failed
        assert (first.error or "").startswith("RequestTimeoutError: ")
        assert "send_client_request" in (first.traceback or "")
        assert second.error == "SystemExit: enough  [31mred"
        assert re.fullmatch(r"AssertionError: test_many\.py:\d+: raise AssertionError.*", third.error or "")

    def test_no_session(self) -> None:
        """A bot that cannot be reached and a client that cannot be made are rows."""
        report = run_many(ask, 2, "ws://127.0.0.1:9", spawn_rate=math.inf)
        assert [row.outcome for row in report.rows] == ["not connected"] * 2
        assert [(of.name, of.count, of.failed, of.p50) for of in report.percentiles] == [("connect", 2, 2, None)]

        def make() -> MeasuredClient:
            raise OSError("no such file")

        (row,) = run_many(ask, 1, make).rows
        assert (row.outcome, row.error) == ("not connected", "OSError: no such file")

    def test_another_way_to_connect(self, bot: EmbeddedBot) -> None:
        """The caller's functions make and connect the client."""

        def start(client: MeasuredClient) -> None:
            client.start_bot_and_connect(f"{bot.base_url}/start")

        report = run_many(ask, 2, lambda: MeasuredClient.for_url(bot.base_url), connect=start)
        assert report.failed == ()
        assert report.percentiles[0].name == "start_bot_and_connect"

    def test_not_a_measured_client(self) -> None:
        """Any other client is refused at once, not in a report that is easily taken for the bot's failures."""
        with pytest.raises(TypeError, match=r"must return a MeasuredClient, not RTVIClient; make the client with"):
            run_many(ask, 1000, lambda: RTVIClient.for_url("ws://127.0.0.1:9"))  # type: ignore
        with pytest.raises(TypeError, match=r"must return a MeasuredClient, not object"):
            run_many(ask, 1, lambda: object())  # type: ignore[arg-type,return-value]

    @pytest.mark.parametrize(("n", "options"), [(-1, {}), (1, {"concurrency": 0}), (1, {"spawn_rate": 0})])
    def test_impossible(self, n: int, options: dict[str, Any]) -> None:
        """Numbers out of range are refused immediately."""
        with pytest.raises(ValueError, match="must be"):
            run_many(ask, n, "ws://127.0.0.1:9", **options)

    @pytest.mark.parametrize("url", ["localhost:7889", "ftp://127.0.0.1", ""])
    def test_not_the_url_of_a_bot(self, url: str) -> None:
        """A URL by which no bot can be reached is refused at once."""
        with pytest.raises(InvalidTransportParamsError, match="This is not the URL of a bot"):
            run_many(ask, 2, url)

    def test_concurrency(self, bot: EmbeddedBot) -> None:
        """run_many() runs as many sessions at a time as `concurrency` allows, and no more."""
        together = threading.Barrier(3)
        lock, now, most = threading.Lock(), [0], [0]

        def scenario(_: MeasuredClient) -> None:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            together.wait(GUARD)
            with lock:
                now[0] -= 1

        report = run_many(scenario, 9, bot.ws_url, concurrency=3, spawn_rate=math.inf)
        assert report.failed == ()
        assert most == [3]

    def test_first_client(self, bot: EmbeddedBot) -> None:
        """The other sessions start when the first one's client is made: what it loads delays none of them."""
        others = threading.Event()
        overtaken: list[bool] = []

        def make() -> MeasuredClient:
            if not overtaken:
                overtaken.append(others.wait(0.3))
            others.set()
            return MeasuredClient.for_url(bot.ws_url)

        report = run_many(lambda _: None, 3, make, spawn_rate=math.inf)
        assert report.failed == ()
        assert overtaken == [False]

    def test_no_first_client(self, bot: EmbeddedBot) -> None:
        """The other sessions start, too, if the first client cannot be made."""
        numbers = itertools.count()

        def make() -> MeasuredClient:
            if not next(numbers):
                raise OSError("no such file")
            return MeasuredClient.for_url(bot.ws_url)

        report = run_many(lambda _: None, 3, make)
        assert [row.outcome for row in report.rows] == ["not connected", "passed", "passed"]

    def test_ramp_up(self, bot: EmbeddedBot) -> None:
        """Sessions start one after the other, at the given rate."""
        with takes(2.0):
            report = run_many(lambda _: None, 6, bot.ws_url, spawn_rate=50)
        assert all(row.began >= row.number / 50 for row in report.rows)

    def test_ramp_up_after_a_wait(self, bot: EmbeddedBot) -> None:
        """Sessions that waited for others start at that rate, too."""
        together = threading.Barrier(4)

        def scenario(_: MeasuredClient) -> None:
            together.wait(GUARD)
            time.sleep(0.1)

        report = run_many(scenario, 8, bot.ws_url, concurrency=4, spawn_rate=50)
        assert report.failed == ()
        assert report.rows[7].began - report.rows[4].began > 0.04

    def test_no_thread(self, bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch) -> None:
        """A session without a thread is a failed row, and the others continue."""
        started = iter([False, True, False])
        no_thread(monkeypatch, lambda role: role == "scenario" and next(started))
        rows: list[Row] = []
        report = run_many(ask, 3, bot.ws_url, spawn_rate=math.inf, on_row=rows.append)
        assert [row.outcome for row in report.rows] == ["passed", "not connected", "passed"]
        assert "NoThreadError: can't start new thread. End other threads" in str(report.rows[1].error)
        assert len(rows) == 3

    def test_on_row_raises(
        self, bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An exception of `on_row`, on any thread, is only logged."""
        started = iter([False, True, False])
        no_thread(monkeypatch, lambda role: role == "scenario" and next(started))

        def on_row(row: Row) -> None:
            raise LookupError(f"no place for {row.number}")

        report = run_many(ask, 3, bot.ws_url, concurrency=1, spawn_rate=math.inf, on_row=on_row)
        assert [row.outcome for row in report.rows] == ["passed", "not connected", "passed"]
        assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
            f"no place for {number}" for number in range(3)
        ]

    def test_none(self) -> None:
        """Zero sessions give an empty report."""
        report = run_many(ask, 0, "ws://127.0.0.1:9")
        assert (report.rows, report.percentiles, str(report).splitlines()[0]) == ((), (), "0 sessions in 0.0 s: none")


class TestSides:
    @pytest.mark.parametrize("way", ["ask", "wait_for_answer"])
    def test_a_bot_that_does_not_hear(self, way: str) -> None:
        """Each row says that the bot has not heard the question, though all of it was sent in time."""

        def scenario(client: MeasuredClient) -> None:
            if way == "ask":
                client.ask(ToneSource(duration=0.3), 1.0)
            else:
                client.wait_for_answer(1.0)

        with EmbeddedBot(speech_threshold=math.inf) as bot:
            mic = ToneSource(duration=0.3) if way == "wait_for_answer" else None
            report = run_many(scenario, 1, lambda: MeasuredClient.for_url(bot.ws_url, mic=mic))
        (row,) = report.rows
        assert (row.outcome, row.kind, row.not_heard, row.late_answers) == ("failed", "not_heard", 1, 0)
        assert row.audio.sent > 0.3
        assert (row.audio.not_taken, row.audio.received) == (0.0, 0.0)
        assert "sent in time, and the server took all of it" in (row.error or "")
        assert "questions that the bot did not hear, though they were said: 1 in 1 session" in str(report)

    def test_a_stalled_server(self, bot: EmbeddedBot, tmp_path: Path) -> None:
        """Of 50 sessions those whose server stalls fail; table and page say whose audio was lost, and how much."""
        numbers = itertools.count()
        stalled: dict[MeasuredClient, int] = {}
        words = write_wav(tmp_path / "words.wav", [tone(6.0)])

        def make() -> MeasuredClient:
            number = next(numbers)
            url = f"ws://{server.authority}/ws" if number % 10 == 3 else bot.ws_url
            client = MeasuredClient(
                transport=WebSocketTransport(url, stall_timeout=GUARD), enable_mic=False, speaker=False
            )
            if url != bot.ws_url:
                stalled[client] = number
            return client

        def scenario(client: MeasuredClient) -> None:
            if client in stalled:
                client.ask(words, 7.0)
            else:
                client.ask("Well?", GUARD, audio_response=False)

        with Server(greet_and_stall) as server:
            report = run_many(scenario, 50, make, spawn_rate=math.inf)
        failed = report.failed
        assert len(failed) == len(stalled) == 5
        for row in report.rows:
            is_failed = row in failed
            assert (row.outcome, row.kind) == (("failed", "not_heard") if is_failed else ("passed", None))
            assert row.lost_seconds.received == 0
            assert 0.5 < row.lost_seconds.sent < 7 if is_failed else row.lost_seconds.sent == 0
        table = str(report)
        assert "50 sessions in " in table
        named = re.findall(r"(?m)^\d x RequestTimeoutError: .* \[not_heard\] \(sessions? ([\d, ]+)\)$", table)
        assert sorted(int(number) for each in named for number in each.split(", ")) == [row.number for row in failed]
        lost = sum(row.audio.not_taken for row in report.rows)
        assert f"that this process was too busy for): {lost:.1f} s in 5 sessions" in table
        assert "5 sessions lost audio: the bot or this machine is overloaded; " in table
        report.to_html(tmp_path / "load.html")
        sessions = sessions_in(tmp_path / "load.html")
        assert [session["number"] for session in sessions if session["outcome"] == "failed"] == [
            row.number for row in failed
        ]
        assert [session["lost_seconds"] for session in sessions] == [row.lost_seconds._asdict() for row in report.rows]


def greet_and_stall(peer: Peer) -> None:
    """Serve one session as a bot that reads nothing more once it was ready."""
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the system would take some seconds of audio
    upgrade(peer)
    bot = Bot(peer.sock)
    ready = json.loads(text_in(bot.receive()[1]))
    answer = {"label": "rtvi-ai", "type": "bot-ready", "id": ready["id"], "data": {"version": "2.2.0"}}
    bot.send(message_frame(WebSocketTransport, json.dumps(answer)))
    peer.hold()


class TestEnding:
    def test_too_long(self, bot: EmbeddedBot) -> None:
        """A session that exceeds its limit is closed; its calls end, and it has failed even if the scenario returns."""

        def stubborn(client: MeasuredClient) -> None:
            with contextlib.suppress(ConnectionError):
                never(client)

        report = run_many(stubborn, 3, bot.ws_url, session_timeout=0.2, spawn_rate=math.inf)
        assert [(row.outcome, row.error) for row in report.rows] == [
            ("failed", "TimeoutError: the session did not end within 0.2 s")
        ] * 3
        assert all(0.2 <= row.seconds < GUARD for row in report.rows)

    def test_abandoned(
        self, bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A scenario that blocks in its own call is abandoned, and its stack is logged."""
        limits.patch(monkeypatch, scenario_end=0.1)
        free = threading.Event()
        report = run_many(lambda _: free.wait(GUARD), 1, bot.ws_url, session_timeout=0.1)
        assert [row.outcome for row in report.rows] == ["failed"]
        assert "free.wait(GUARD)" in caplog.text
        free.set()

    def test_no_thread_to_close_on(self, bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a thread, the calling thread closes the client."""
        no_thread(monkeypatch, "scenario-end".__eq__)
        report = run_many(never, 3, bot.ws_url, session_timeout=0.2, spawn_rate=math.inf)
        assert [row.error for row in report.rows] == ["TimeoutError: the session did not end within 0.2 s"] * 3
        assert all(row.seconds < GUARD for row in report.rows)

    def test_abandoned_during_on_row(self, bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch) -> None:
        """An `on_row` that takes too long after its session was closed is abandoned."""
        limits.patch(monkeypatch, scenario_end=0.2)
        free = threading.Event()
        with takes(5.0):
            report = run_many(never, 1, bot.ws_url, session_timeout=0.1, on_row=lambda _: free.wait(GUARD))
        free.set()
        assert len(report.rows) == 1

    def test_ctrl_c_ends_the_current_sessions(self, bot: EmbeddedBot) -> None:
        """Ctrl-C ends the current sessions and starts no others; the exception's argument has the rows so far."""
        begun = threading.Semaphore(0)

        def scenario(client: MeasuredClient) -> None:
            begun.release()
            never(client)

        def strike() -> None:
            for _ in range(3):
                assert begun.acquire(timeout=GUARD)
            os.kill(os.getpid(), signal.SIGINT)

        striking = threading.Thread(target=strike)
        striking.start()
        with pytest.raises(KeyboardInterrupt) as caught:
            run_many(scenario, 100, bot.ws_url, concurrency=3, spawn_rate=math.inf)
        striking.join()
        rows = caught.value.args[0].rows
        assert [(row.number, row.outcome) for row in rows] == [(number, "interrupted") for number in range(3)]
        assert all(row.durations.keys() == {"connect"} for row in rows)

    def test_ctrl_c_twice(self, bot: EmbeddedBot) -> None:
        """The second Ctrl-C does not wait for sessions that end slowly; the exception's argument has all rows."""
        ready, free = threading.Semaphore(0), threading.Event()

        def scenario(client: MeasuredClient) -> None:
            ready.release()
            with contextlib.suppress(RTVIError):  # BotNotReadyError, if it has been closed already
                never(client)
            ready.release()  # the first one has closed it
            free.wait(GUARD)

        def strike() -> None:
            for _ in range(2):
                for _ in range(3):
                    assert ready.acquire(timeout=GUARD)
                os.kill(os.getpid(), signal.SIGINT)

        striking = threading.Thread(target=strike)
        striking.start()
        with takes(5.0), pytest.raises(KeyboardInterrupt) as caught:
            run_many(scenario, 100, bot.ws_url, concurrency=3, spawn_rate=math.inf)
        free.set()
        striking.join()
        rows = caught.value.args[0].rows
        assert [(row.number, row.outcome) for row in rows] == [(number, "interrupted") for number in range(3)]

    def test_ctrl_c_in_an_application(self, bot: EmbeddedBot) -> None:
        """An application that does not catch it ends as by Ctrl-C, and shows the report so far."""
        script = """
import os, signal, sys
from rtvi_sync.testing import run_many
run_many(lambda client: os.kill(os.getpid(), signal.SIGINT), 1, sys.argv[1])
"""
        done = subprocess.run(
            [sys.executable, "-c", script, bot.ws_url], cwd=ROOT, capture_output=True, text=True, timeout=GUARD
        )
        assert done.returncode == -signal.SIGINT
        assert "\nKeyboardInterrupt: 1 sessions in " in done.stderr
        assert "\nconnect      1       0  " in done.stderr
