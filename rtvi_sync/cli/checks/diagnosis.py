"""The finding of a check: a status, a text, and a cure."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import attrs

from rtvi_sync.protocol.text import one_line

Status: TypeAlias = Literal["ok", "warn", "fail", "skipped"]

# An error of this package has a sentence with the cause, then sentences with the cure.
_ADVICE = r"\. (?=[A-Z])"


@attrs.frozen
class Diagnosis:
    """The finding of a check.

    Attributes:
        status: "warn": the bot works, but could work better. "skipped": there was nothing to check.
        text: Finding in words.
        cure: Advice; "" for none.
        seconds: Duration, if it differs from the check's own time.
        needs: Id of the failed check that this one needs.
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
    """Return the finding of a check that needs a failed one."""
    return Diagnosis("skipped", f"needs {by}", needs=by)


def of_error(error: BaseException, cure: str = "") -> Diagnosis:
    """Return the finding of an error: its first sentence, and a cure, or the error's own advice."""
    first, *advice = re.split(_ADVICE, one_line(str(error) or type(error).__name__), maxsplit=1)
    return fail(first.rstrip("."), cure or "".join(advice).rstrip(".") or "See the bot's log")
