"""One question to a bot: a session of its own for each.

A session is a conversation. Requests that shared one would continue each other's, and a pool would have to find out
which of its sessions still live and how much their bots remember. Connecting to a running bot takes some milliseconds,
which is little beside an answer. So each request has a client and leaves nothing behind; no fork and no restart of a
worker can disturb it. (If starting a bot takes seconds, or a user should continue where the last session ended, keep
the session for this user in one process, as samples/flask_app does.)
"""

import contextlib
import time
from dataclasses import dataclass

from rtvi_sync import RTVIClient


@dataclass(frozen=True)
class Answer:
    """The bot's answer, and the seconds that it took, including the connect."""

    text: str
    seconds: float


def ask(question: str, url: str, limit: float) -> Answer:
    """Ask the bot at a URL, see `settings.BOT_URL`, and wait for its answer.

    Raises:
        TimeoutError: it was not there, or not done, within `limit` seconds.
        RTVIError: the bot could not be reached, or has left. (Both are of the package, and one may be the other.)
    """
    began = time.monotonic()
    with contextlib.closing(RTVIClient.for_url(url, text_only=True, connect_timeout=limit)) as client:
        client.connect()
        remaining = began + limit - time.monotonic()
        text = client.ask(question, max(0.0, remaining), audio_response=False).bot_text or ""
    return Answer(text, time.monotonic() - began)
