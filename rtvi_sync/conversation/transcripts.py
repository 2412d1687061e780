"""The words of a bot on a transport without messages: the application's `transcribe` finds them in the audio."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..concurrency.logs import package_logger
from ..media.turn_audio import TurnAudio
from ..protocol.spoken_text import MAX_CHARACTERS
from ..protocol.text import quoted

logger: logging.Logger = package_logger(__name__)


def transcript_of(transcribe: Callable[[bytes, int], object], audio: TurnAudio) -> str | None:
    """Return the words, at most 100,000 characters. None if they are not known. May take long. Raises nothing.

    Args:
        transcribe: The application's function. Its errors are logged.
        audio: The audio of a turn. If it is empty, the bot has said nothing.
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
