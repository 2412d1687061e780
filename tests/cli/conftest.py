"""WAV files of short utterances, for short conversations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.cli import main
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.doctor import IDS, Examined
from tests.support.wavs import silence, tone, write_wav


@pytest.fixture
def one_word(tmp_path: Path) -> Path:
    """Write a WAV file of one utterance of 0.3 s, with its text beside it."""
    tmp_path.joinpath("word.txt").write_text("Hello.\n")
    return write_wav(tmp_path / "word.wav", [silence(0.2), tone(0.3), silence(0.1)])


@pytest.fixture
def two_words(tmp_path: Path) -> Path:
    """Write a WAV file of two utterances of 0.3 s, with their text beside it."""
    tmp_path.joinpath("words.txt").write_text("First word.\n\nSecond word.\n")
    return write_wav(tmp_path / "words.wav", [silence(0.2), tone(0.3), silence(0.8), tone(0.3)])


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    """Start a bot for all of these tests."""
    with EmbeddedBot(transcripts=["Hello my bot."], hangover=0.2) as bot:
        yield bot


@pytest.fixture
def eval_bot() -> Iterator[EmbeddedBot]:
    """Start a bot that hangs up on protobuf, as Pipecat's runner does if the bot has no entry `websocket`."""

    def hang_up(session: BotSession, _message: dict[str, Any]) -> bool:
        if session.eval_route is None:
            session.close()
        return session.eval_route is None

    with EmbeddedBot(transcripts=["Hello my bot."], hangover=0.2, handler=hang_up) as bot:
        yield bot


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Callable[..., Examined]:
    """Return a function that examines a bot."""

    def examine(url: str, *options: str) -> Examined:
        status = main(["doctor", url, "--json", *options])
        document = json.loads(capsys.readouterr().out)
        assert [*document] == ["ok", "url", "rtvi", "bot", "checks"]
        assert [check["id"] for check in document["checks"]] == IDS
        for check in document["checks"]:
            assert [*check] == ["id", "status", "ms", "finding", "cure"]
            assert (check["ms"] is None) is (check["status"] == "skipped")
            assert bool(check["cure"]) is (check["status"] in ("warn", "fail")), check
            assert len(check["finding"]) < 300
        return Examined(status, document)

    return examine
