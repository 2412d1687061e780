"""Mutants of the order of a voice's packets."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/transports/webrtc/jitter_buffer.py",
    ("tests/transports/webrtc/test_jitter_buffer.py",),
    (
        Mutant(
            "A packet is given up one later.",
            "for each in self._waiting) < depth:",
            "for each in self._waiting) <= depth:",
        ),
        Mutant("A gap of 50 packets is not made up.", "ahead > _MAX_GAP:", "ahead >= _MAX_GAP:"),
        Mutant("A gap of 51 packets is made up.", "ahead > _MAX_GAP:", "ahead > _MAX_GAP + 1:"),
        Mutant(
            "The sequence has no wrap-around for what waits.",
            "max((each - self._next) % _ROUND for each in self._waiting)",
            "max((each - self._next) for each in self._waiting)",
        ),
        Mutant(
            "The next number does not wrap around.",
            "self._next = (self._next + 1) % _ROUND",
            "self._next = self._next + 1",
        ),
        Mutant(
            "A packet behind the due one, over the wrap-around, is far ahead.",
            "ahead = (sequence - self._next + _ROUND // 2) % _ROUND - _ROUND // 2",
            "ahead = (sequence - self._next) % _ROUND",
        ),
        Mutant("A late packet is played.", "elif ahead < 0:", "elif False:"),
        Mutant("The packet that is due is late.", "elif ahead < 0:", "elif ahead <= 0:"),
        Mutant("A new sender is not seen.", "if sender != self._sender or ahead", "if ahead"),
        Mutant(
            "What waits of one sender is lost with the next.",
            "            due = self._due(0)\n",
            "            self._waiting.clear()\n",
        ),
    ),
)
