"""The turns that the tracker makes of captured sessions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rtvi_sync import RTVIMessage
from rtvi_sync.conversation.record import TurnRecord
from rtvi_sync.conversation.tracker import TurnTracker
from rtvi_sync.protocol.dialects import INBOUND, decode_payload, parse_version

_PAUSE = 100.0
_FOR_EVER = 1e6  # longer than all waits of the tracker


class Replay:
    """A tracker that receives the rows of a log.

    Attributes:
        tracker: has the resulting turns.
        now: monotonic seconds of the last row.
    """

    def __init__(self) -> None:
        self.tracker = TurnTracker()
        self.now = 0.0

    def play(self, rows: list[list[Any]], without: Collection[str] = ()) -> tuple[TurnRecord, ...]:
        """Return the turns of a log, of which messages of some types are left out, with all the time that they need.

        If another log was played before, this is the next session of the same tracker.
        """
        known = max((turn.number for turn in self.tracker.turns), default=0)
        end = self._play(rows, without)
        if end != "client":  # which leaves when all is over
            self.tracker.end_session(self.now)
        self._pass_time(self.now + _FOR_EVER)
        return tuple(turn for turn in self.tracker.turns if turn.number > known)

    def lose(self, rows: list[list[Any]], count: int) -> None:
        """Play the first rows of a log, behind which the session is lost."""
        ready = next(index for index, row in enumerate(rows) if row[1] == "in" and row[2]["type"] == "bot-ready")
        self._play(rows[: max(count, ready + 1)], ())
        self.tracker.end_session(self.now, lost=True)

    def _play(self, rows: list[list[Any]], without: Collection[str]) -> str | None:
        """Play rows; return who has ended the session, if that is one of them."""
        ready = next(row[2]["data"] for row in rows if row[1] == "in" and row[2]["type"] == "bot-ready")
        has_audio = ready.get("capabilities", {}).get("audio_out") is not False
        self.tracker.start_session(audio_out=has_audio, version=parse_version(ready["version"]))
        begin, end = self.now + _PAUSE, None
        for seconds, kind, what in rows:
            self._pass_time(begin + seconds)
            if kind == "out" and what["type"] not in without:
                self.tracker.sent(self.now, RTVIMessage(what["type"], what.get("data"), what.get("id")))
            elif kind == "in" and what["type"] not in without:
                self._take(what)
            elif kind == "end":
                end = what
        return end

    def _pass_time(self, now: float) -> None:
        while (due := self.tracker.due) is not None and due <= now:
            self.tracker.pass_time(due)
        self.now = now

    def _take(self, message: dict[str, Any]) -> None:
        spec = INBOUND.get(message["type"])
        if spec is not None and spec.event is not None:
            data = decode_payload(spec, message.get("data"))
            self.tracker.take(spec.event, self.now, data)
