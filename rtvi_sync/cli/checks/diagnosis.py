"""What a check has found: how it is, in words, and the cure."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import attrs

from rtvi_sync.protocol.text import one_line

Status: TypeAlias = Literal["ok", "warn", "fail", "skipped"]

# Errors of this package have a sentence that says what failed, then those that say what to do.
_ADVICE = r"\. (?=[A-Z])"


@attrs.frozen
class Diagnosis:
    """What a check has found.

    Attributes:
        status: "warn": the bot works, but not as well as it could; "skipped": there was nothing to check.
        text: The finding, in words.
        cure: What to do; "": nothing.
        seconds: How long it took, if the check itself cannot tell by its own time.
        needs: The id of the check that failed, which this one needs.
    """

    status: Status
    text: str
    cure: str = ""
    seconds: float | None = None
    needs: str = ""


def ok(text: str, *, seconds: float | None = None) -> Diagnosis:
    """Return the finding that all is well."""
    return Diagnosis("ok", text, seconds=seconds)


def warn(text: str, cure: str) -> Diagnosis:
    """Return the finding that something could be better."""
    return Diagnosis("warn", text, cure)


def fail(text: str, cure: str, *, seconds: float | None = None) -> Diagnosis:
    """Return the finding that something is wrong."""
    return Diagnosis("fail", text, cure, seconds)


def skipped(text: str) -> Diagnosis:
    """Return the finding that there was nothing to check."""
    return Diagnosis("skipped", text)


def blocked(by: str) -> Diagnosis:
    """Return the finding of a check that needs another one, which has failed."""
    return Diagnosis("skipped", f"needs {by}", needs=by)


def of_error(error: BaseException, cure: str = "") -> Diagnosis:
    """Return the finding of an error: its first sentence, and a cure, or the error's own advice."""
    first, *advice = re.split(_ADVICE, one_line(str(error) or type(error).__name__), maxsplit=1)
    return fail(first.rstrip("."), cure or "".join(advice).rstrip(".") or "See the bot's log")
