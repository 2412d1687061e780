"""The order of a voice's packets, and the detection of lost ones."""

from __future__ import annotations

from typing import Final

# A packet counts as lost once one arrives that is this many later: after 80 ms, with packets of 20 ms.
DEPTH: Final = 3
# After more missing packets than this (1 s), the network was down or the bot sent nothing: the gap is not filled.
_MAX_GAP = 50
_ROUND = 1 << 16


class JitterBuffer:
    """Puts packets in order, without a clock: a packet is due once all earlier ones have arrived or count as lost.

    So a lost packet does not delay audio that is played from a reserve of `DEPTH` packets, and the received audio is as
    long as the sent audio.
    """

    def __init__(self) -> None:
        self._sender: int | None = None
        self._next = 0  # the sequence number that is due
        self._waiting: dict[int, bytes] = {}

    def add(self, sender: int, sequence: int, payload: bytes) -> list[bytes | None]:
        """Take a packet; return the payloads that are due, with None for each that is lost.

        A packet behind the one that is due is late, however far. A sender that starts again uses another number (SSRC),
        because SRTP drops packets with an old place in the sequence.
        """
        due: list[bytes | None] = []
        ahead = (sequence - self._next + _ROUND // 2) % _ROUND - _ROUND // 2
        if sender != self._sender or ahead > _MAX_GAP:
            due = self._due(0)
            self._sender, self._next = sender, sequence
        elif ahead < 0:
            return []
        self._waiting[sequence] = payload
        return due + self._due(DEPTH)

    def _due(self, depth: int) -> list[bytes | None]:
        """Take the due payloads. A packet counts as lost once one has arrived that is `depth` later."""
        due: list[bytes | None] = []
        while self._waiting:
            found = self._waiting.pop(self._next, None)
            if found is None and max((each - self._next) % _ROUND for each in self._waiting) < depth:
                break
            due.append(found)
            self._next = (self._next + 1) % _ROUND
        return due
