"""The checks of `rtvi-sync doctor`, in the order in which users meet the faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from rtvi_sync import DisconnectedError, RTVIError
from rtvi_sync.client.recorder import address_of
from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.protocol.recording_rows import Redactor

from . import reaching, surroundings, talking
from .diagnosis import Diagnosis, blocked, fail, of_error, skipped
from .examination import Examination

__all__ = ["CHECKS", "Check", "Examination", "Result", "examine"]

_LOST: Final = "See the bot's log: it may have failed, or it ends idle sessions"


@attrs.frozen
class Check:
    """One check.

    Attributes:
        id: Name, which scripts read.
        run: Function that runs it.
        needs: Id of the check that must pass first; "" for none.
        by_messages: True if it needs the bot's messages. It is skipped over a transport without messages.
    """

    id: str
    run: Callable[[Examination], Diagnosis]
    needs: str = ""
    by_messages: bool = False


CHECKS: Final = (
    Check("port", reaching.port),
    Check("http", reaching.http, "port"),
    Check("tls", reaching.tls, "port"),
    Check("path", reaching.path, "port"),
    Check("token", reaching.token, "port"),
    Check("entry", reaching.entry, "port"),
    Check("eval", reaching.eval_route, "entry"),
    Check("rtvi", reaching.rtvi, "entry"),
    Check("version", talking.version, "rtvi", by_messages=True),
    Check("greeting", talking.greeting, "rtvi"),
    Check("answer", talking.answer, "rtvi", by_messages=True),
    Check("function_reporting", talking.function_reporting, "answer", by_messages=True),
    Check("audio_out", talking.audio_out, "answer"),
    Check("audio_in", talking.audio_in, "rtvi"),
    Check("mute", talking.mute, "rtvi", by_messages=True),
    Check("vad", talking.vad, "audio_in", by_messages=True),
    Check("interruption", talking.interruption, "audio_in"),
    Check("ping", surroundings.ping, "rtvi"),
    Check("timing", surroundings.timing, "audio_out"),
    Check("limits", surroundings.limits, "rtvi", by_messages=True),
    Check("local", surroundings.local),
)


@attrs.frozen
class Result:
    """The result of a check.

    Attributes:
        id: Id of the check.
        finding: Its finding.
        seconds: Its duration; None if it was skipped.
    """

    id: str
    finding: Diagnosis
    seconds: float | None

    def as_data(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "id": self.id,
            "status": self.finding.status,
            "ms": None if self.seconds is None else round(1000 * self.seconds, 1),
            "finding": self.finding.text,
            "cure": self.finding.cure,
        }


def examine(exam: Examination, started: Callable[[str], object] = lambda _: None) -> Iterator[Result]:
    """Run all checks, and yield their results. After a failure, the checks that need it are skipped.

    Args:
        exam: Examination of the bot.
        started: Function called with the id of a check before it runs.
    """
    blockers: dict[str, str] = {}  # by check, the failed one that it needs
    lost = ""  # the check in which the session was lost
    for check in CHECKS:
        began = monotonic()
        blocker = blockers.get(check.needs, "")
        if not blocker and lost and check.needs not in ("", "port"):
            blocker = lost
        if blocker:
            finding = blocked(blocker)
        elif check.by_messages and exam.is_only_heard:
            finding = skipped("not by telephone")
        elif exam.limit.expired and check.needs:
            finding = skipped("there was no time left")
        else:
            started(check.id)
            try:
                finding = check.run(exam)
            except DisconnectedError as error:
                lost = check.id
                code = f" (code {error.code})" if error.code is not None else ""
                finding = fail(f"the {error.initiator} ended the session{code}", _LOST)
            except (RTVIError, OSError) as error:
                finding = of_error(error)
        if finding.status == "fail" or finding.needs:
            blockers[check.id] = finding.needs or check.id
        seconds = finding.seconds if finding.seconds is not None else monotonic() - began
        masked = Redactor(address_of(exam.client._life)[1]).text  # a server may quote the request, with its key
        finding = attrs.evolve(finding, text=masked(finding.text), cure=masked(finding.cure))
        yield Result(check.id, finding, None if finding.status == "skipped" else seconds)
