"""The words of a bot that is only heard: what the application's `transcribe` makes of the audio of its turns."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..concurrency.logs import package_logger
from ..media.turn_audio import TurnAudio
from ..protocol.spoken_text import MAX_CHARACTERS
from ..protocol.text import quoted

logger: logging.Logger = package_logger(__name__)


def transcript_of(transcribe: Callable[[bytes, int], object], audio: TurnAudio) -> str | None:
    """Return what was said, 100,000 characters at most; None if that is not known. May take long; raises nothing.

    Args:
        transcribe: The application's. What it raises is logged.
        audio: Of a turn; without any the bot has said nothing.
    """
    if not audio:
        return None if audio.truncated else ""
    try:
        text = transcribe(audio.pcm, audio.sample_rate_hz)
    except BaseException:  # SystemExit too: the thread serves others
        logger.exception("The function `transcribe` has failed; the words of the turn are not known")
        return None
    if not isinstance(text, str):
        logger.error("The function `transcribe` must return a str, and has returned %s", quoted(text))
        return None
    return text[:MAX_CHARACTERS]
