"""The order of the packets of a voice, and which of them are lost."""

from __future__ import annotations

from typing import Final

# A packet is given up when one has come that is this much later: after 80 ms, with packets of 20 ms.
DEPTH: Final = 3
# After more missing packets than these the sender has begun again, or the network was gone: 1 s.
_MAX_GAP = 50
_ROUND = 1 << 16


class JitterBuffer:
    """Puts packets in order, without a clock: a packet is due as soon as those before it have come or are given up.

    So a lost packet delays nothing that comes after it, and what is received is as long as what was sent.

    Attributes:
        lost: how many packets were given up.
        late: how many came after that.
    """

    def __init__(self) -> None:
        self._next: int | None = None  # the sequence number that is due
        self._waiting: dict[int, bytes] = {}
        self.lost: int = 0
        self.late: int = 0

    def add(self, sequence: int, payload: bytes) -> list[bytes | None]:
        """Take a packet; return the payloads that are due, with None for each that is lost."""
        if self._next is None:
            self._next = sequence
        ahead = (sequence - self._next + _ROUND // 2) % _ROUND - _ROUND // 2
        if abs(ahead) > _MAX_GAP:
            self._waiting.clear()
            self._next = sequence
        elif ahead < 0:
            self.late += 1
            return []
        self._waiting[sequence] = payload
        due: list[bytes | None] = []
        while self._waiting:
            found = self._waiting.pop(self._next, None)
            if found is None:
                if max((each - self._next) % _ROUND for each in self._waiting) < DEPTH:
                    break
                self.lost += 1
            due.append(found)
            self._next = (self._next + 1) % _ROUND
        return due
