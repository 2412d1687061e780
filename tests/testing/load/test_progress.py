"""The progress of a load test, which is written while it runs."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Iterator

import pytest

from rtvi_sync.testing import EmbeddedBot, MeasuredClient, run_many
from tests.support import limits
from tests.support.slowness import GUARD


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    with EmbeddedBot() as bot:
        yield bot


def test_lines(bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines on stderr show the progress where stderr is no terminal, only on request."""
    limits.patch(monkeypatch, load_line=0.01)
    told = threading.Event()

    def scenario(client: MeasuredClient) -> None:
        if client is first[0]:
            raise ValueError("no")
        told.wait(GUARD)

    def make() -> MeasuredClient:
        first.append(client := MeasuredClient.for_url(bot.ws_url))
        return client

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if "1 of 2 sessions ended, 1 running, 1 failed" in text:
                told.set()
            return super().write(text)

    first: list[MeasuredClient] = []
    monkeypatch.setattr(sys, "stderr", stream := Stream())
    assert len(run_many(scenario, 2, make, progress=True).failed) == 1
    assert told.is_set()
    assert re.fullmatch(r"(\d+ s: \d of 2 sessions ended, \d running, \d failed\n)+", stream.getvalue())
    first.clear()
    monkeypatch.setattr(sys, "stderr", stream := Stream())
    run_many(scenario, 2, make)
    assert stream.getvalue() == ""


def test_a_bar(bot: EmbeddedBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal has a bar, which is gone in the end, unless it is not wanted."""
    pytest.importorskip("rich")
    seen = threading.Event()

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            if "1 running" in text:
                seen.set()
            return super().write(text)

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    run_many(lambda _: seen.wait(GUARD), 1, bot.ws_url)
    assert "0/1" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    run_many(lambda _: None, 1, bot.ws_url, progress=False)
    assert terminal.getvalue() == ""
