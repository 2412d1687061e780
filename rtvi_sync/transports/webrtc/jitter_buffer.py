"""The order of the packets of a voice, and which of them are lost."""

from __future__ import annotations

from typing import Final

# A packet is given up when one has come that is this much later: after 80 ms, with packets of 20 ms.
DEPTH: Final = 3
# After more missing packets than these the network was gone, or the bot has sent nothing: 1 s that is not made up.
_MAX_GAP = 50
_ROUND = 1 << 16


class JitterBuffer:
    """Puts packets in order, without a clock: a packet is due as soon as those before it have come or are given up.

    So a lost packet delays nothing that is played from a reserve of `DEPTH` packets, and what is received is as long as
    what was sent.
    """

    def __init__(self) -> None:
        self._sender: int | None = None
        self._next = 0  # the sequence number that is due
        self._waiting: dict[int, bytes] = {}

    def add(self, sender: int, sequence: int, payload: bytes) -> list[bytes | None]:
        """Take a packet; return the payloads that are due, with None for each that is lost.

        A packet behind the one that is due is late, however far: a sender that begins again does so under another
        number (SSRC), because SRTP drops what has an old place in the sequence.
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
        """Take what is due if a packet is given up once one has come that is `depth` later."""
        due: list[bytes | None] = []
        while self._waiting:
            found = self._waiting.pop(self._next, None)
            if found is None and max((each - self._next) % _ROUND for each in self._waiting) < depth:
                break
            due.append(found)
            self._next = (self._next + 1) % _ROUND
        return due
