"""The words that are found in the audio of a turn."""

from __future__ import annotations

import pytest

from rtvi_sync.conversation.transcripts import transcript_of
from rtvi_sync.media.turn_audio import TurnAudio

pytestmark = pytest.mark.inside

HEARD = TurnAudio(pcm=b"\1\0" * 80, sample_rate_hz=8_000)


def test_what_it_is_called_with() -> None:
    """The function gets the PCM and its rate."""
    assert transcript_of(lambda pcm, rate: f"{len(pcm)} at {rate}", HEARD) == "160 at 8000"


@pytest.mark.parametrize(("audio", "text"), [(TurnAudio(), ""), (TurnAudio(truncated=True), None)])
def test_without_audio(audio: TurnAudio, text: str | None) -> None:
    """A bot that was not heard has said nothing; of one whose audio is missing that is not known."""
    assert transcript_of(lambda *_: "never called", audio) == text


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_failure(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged."""

    def fails(_pcm: bytes, _rate: int) -> str:
        raise error

    assert transcript_of(fails, HEARD) is None
    assert error.__name__ in caplog.text


@pytest.mark.parametrize("text", [None, b"x", 1, ["x"]])
def test_what_is_no_text(text: object, caplog: pytest.LogCaptureFixture) -> None:
    """A value that is no text is logged."""
    assert transcript_of(lambda *_: text, HEARD) is None
    assert repr(text) in caplog.text
