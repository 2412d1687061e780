"""Mutants of the reading and writing of WebSocket frames."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/transports/websocket_frames.py",
    ("tests/transports/test_websocket_frames.py",),
    (
        Mutant("A run has 65 messages.", "len(run) < _LONGEST_RUN:", "len(run) <= _LONGEST_RUN:"),
        Mutant(
            "A message of the largest size is refused.",
            "elif size + len(self._fragments) > self._max_message_bytes:",
            "elif size + len(self._fragments) >= self._max_message_bytes:",
        ),
        Mutant(
            "Fragments do not count together.",
            "elif size + len(self._fragments) > self._max_message_bytes:",
            "elif size > self._max_message_bytes:",
        ),
        Mutant(
            "A message in a run may be too large.",
            "if start + size > end or size > max_bytes:",
            "if start + size > end:",
        ),
        Mutant(
            "A run begins in the middle of a message in fragments.",
            "        if self._kind is not None:\n            return run, position\n",
            "",
            within="FrameReader._read_run",
        ),
        Mutant("A control frame of 125 bytes is refused.", "size > _MAX_CONTROL_BYTES:", "size >= _MAX_CONTROL_BYTES:"),
        Mutant("A control frame may be in fragments.", "if not first & _FIN or size >", "if size >"),
        Mutant(
            "A message begins within another.",
            "if (kind == CONT) != (self._kind is not None):",
            "if kind == CONT and self._kind is None:",
        ),
        Mutant(
            "Fragments are counted over all messages.",
            "            self._fragments_left = _MAX_FRAGMENTS\n",
            "            self._fragments_left = self._fragments_left or _MAX_FRAGMENTS\n",
        ),
        Mutant(
            "Fragments have no limit.",
            "        self._fragments_left -= 1\n",
            "",
        ),
        Mutant(
            "The next message begins with the fragments of the one before.",
            "        self._fragments.clear()\n",
            "",
        ),
        Mutant(
            "After a message in fragments others are out of place.",
            "        self._kind = None\n        self._fragments",
            "        self._fragments",
            within="FrameReader._message",
        ),
        Mutant(
            "A large frame is parsed again at each read.",
            "            self._needed = start + size\n",
            "            self._needed = available + 1\n",
            reason="only the cost changes, and no test of behaviour counts it",
        ),
        Mutant("A masked frame of the server is read.", "if second & _MASKED:", "if False:"),
        Mutant(
            "A reserved bit is ignored.",
            "_RESERVED, _OPCODE = 0x80, 0x70, 0x0F",
            "_RESERVED, _OPCODE = 0x80, 0x40, 0x0F",
        ),
        Mutant("The close code 1015 is valid.", "*range(1007, 1015)", "*range(1007, 1016)"),
        Mutant("The close code 5000 is valid.", "*range(3000, 5000)", "*range(3000, 5001)"),
        Mutant(
            "A reason that is not UTF-8 is valid.",
            "if len(payload) == 1 or not _is_utf_8(payload[2:]):",
            "if len(payload) == 1:",
        ),
        Mutant("A text that is not UTF-8 is valid.", "if kind == TEXT and not _is_utf_8(payload):", "if False:"),
        Mutant("A frame of 126 bytes has a short header.", "if size < _IN_2_BYTES:", "if size <= _IN_2_BYTES:"),
        Mutant("A frame of 65,536 bytes has a medium header.", "elif size < 1 << 16:", "elif size <= 1 << 16:"),
        Mutant(
            "A forked child masks by its parent's keys.",
            "        self._block = iter(())\n\n\n_keys",
            "        pass\n\n\n_keys",
        ),
    ),
)
