"""Errors of the first minutes have a note: the words that `rtvi-sync explain` takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rtvi_sync import RTVIClient, RTVIError, connect
from rtvi_sync.media import WavSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.http_server import Answer, scripted_server
from tests.support.slowness import GUARD


def words_of(call: Callable[[], object]) -> str:
    """Return the words in the note of the error that a call raises."""
    with pytest.raises(RTVIError) as caught:
        call()
    (note,) = caught.value.__notes__
    return str(note).removeprefix("See: rtvi-sync explain ")


@pytest.mark.parametrize("scheme", ["wss", "https"])
def test_a_server_without_tls(scheme: str) -> None:
    """A server that answers without TLS is not called unreachable."""
    with EmbeddedBot() as bot:
        url = bot.base_url.replace("http", scheme)
        assert words_of(lambda: connect(url, connect_timeout=GUARD)) == "no-tls"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "needs-headers"),
        (403, "needs-headers"),
        (422, "wrong-form"),
        (500, "server-failed"),
        (503, "server-failed"),
    ],
)
def test_a_server_that_refuses(status: int, words: str) -> None:
    """The status of the start endpoint leads to its cause."""
    with scripted_server() as server:
        server.answers["/start"] = Answer({}, status)
        assert words_of(lambda: connect(f"{server.url}/start", connect_timeout=GUARD)) == words


def test_mistakes_without_a_server(tmp_path: Path) -> None:
    """A URL without a scheme, a call before `connect()`, and files that are not there."""
    missing = tmp_path / "missing.wav"
    assert words_of(lambda: connect("localhost:7860")) == "no-scheme"
    assert words_of(lambda: RTVIClient(params={"base_url": "http://localhost"}).send_text("Hello")) == "not-connected"
    assert words_of(lambda: RTVIClient(mic=WavSource(missing)).init_devices()) == "no-audio-file"
    with EmbeddedBot() as bot, connect(bot.ws_url, connect_timeout=GUARD, text_only=True) as client:
        assert words_of(lambda: client.ask(missing)) == "no-audio-file"


def test_a_call_in_a_handler() -> None:
    """A handler that asks would wait for itself."""
    found: list[str] = []
    with EmbeddedBot(replies="Noon.") as bot, connect(bot.ws_url, connect_timeout=GUARD, text_only=True) as client:
        client.once("bot_llm_started", lambda: found.append(words_of(lambda: client.ask("And then?"))))
        client.ask("What time is it?", GUARD)
    assert found == ["in-handler"]
