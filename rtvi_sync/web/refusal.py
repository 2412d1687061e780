"""Refusals of requests, independent of the web framework."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

from ..errors import MessageTooLargeError, RTVIError, UnsupportedFeatureError

#: Maximum bytes of a POST body, and of a message of a page that talks.
MAX_BODY_BYTES: Final = 64 * 1024
#: Error of a request without the cookie. The response sets it.
NO_COOKIE: Final = "no_cookie"
#: Headers of responses that are for one user and not a document.
ANSWER_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Refusal(Exception):  # noqa: N818 - the request is wrong, not this program
    """The refusal of a request.

    Attributes:
        status: status of the HTTP response.
        error: a word that the page recognizes, such as "busy".
        message: the explanation.
    """

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(f"{status} {error}: {message}")
        self.status = status
        self.error = error
        self.message = message

    @property
    def body(self) -> dict[str, str]:
        """The body of the response, a JSON object."""
        return {"error": self.error, "message": self.message}


def check_type(is_json: bool) -> None:
    """Check the type of a POST. JSON, because pages of other origins cannot send it without a CORS preflight.

    Raises:
        Refusal: the type is another one.
    """
    if not is_json:
        raise Refusal(415, "not_json", "The body of a POST must be JSON, and its Content-Type application/json.")


def object_in(body: bytes | str) -> dict[str, Any]:
    """Return the JSON object in a body.

    Raises:
        Refusal: the body is too large, or not a JSON object.
    """
    if len(body) > MAX_BODY_BYTES:
        raise Refusal(413, "too_large", f"The body of a request must not exceed {MAX_BODY_BYTES} bytes.")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Refusal(400, "bad_request", "The body must be a JSON object.")
    return document


def text_in(body: dict[str, Any]) -> tuple[str, bool]:
    """Return the text that the user typed, and True if the bot should speak its answer.

    Raises:
        Refusal: the object has no text, or `audio_response` is not a boolean.
    """
    text, aloud = body.get("text"), body.get("audio_response", True)
    if not isinstance(text, str) or not text.strip() or not isinstance(aloud, bool):
        raise Refusal(400, "bad_request", 'The body must be {"text": "...", "audio_response": true or false}.')
    return text, aloud


@contextlib.contextmanager
def refusing_what_fails() -> Iterator[None]:
    """Turn the errors of sending a message to the bot into refusals."""
    try:
        yield
    except MessageTooLargeError as error:
        raise Refusal(413, "too_large", "The message is too large for the bot. Send less data.") from error
    except UnsupportedFeatureError as error:
        raise Refusal(501, "unsupported", "This bot does not support such messages.") from error
    except RTVIError as error:
        raise Refusal(409, "not_ready", "The bot is not ready. Wait for botReady.") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise Refusal(400, "bad_request", "The message cannot be encoded as JSON.") from error


def check_origin(site: str | None, origin: str | None, own: str, *, is_handshake: bool = False) -> None:
    """Check that a request was made by a page of the same origin, or by a program.

    A browser states this in Sec-Fetch-Site, which no page can set. If the header is missing (plain HTTP, older
    browsers), the Origin of a POST is checked. And pages of other origins cannot send JSON without a CORS preflight.

    Args:
        site: the header Sec-Fetch-Site.
        origin: the header Origin.
        own: scheme, host and port of the request.
        is_handshake: True for a WebSocket handshake. Every browser sends its Origin, so a correct Origin is enough.

    Raises:
        Refusal: a page of another origin made the request.
    """
    is_own = site == "same-origin" if site is not None else origin in (None, own)
    if not (is_own or (is_handshake and origin == own)):
        raise Refusal(403, "cross_origin", "Only pages of this site may make this request.")
