"""Mutants of the writing side of a WebSocket."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/transports/websocket_writer.py",
    ("tests/transports/test_websocket_writer.py",),
    (
        Mutant(
            "A thread overtakes frames that have arrived before.",
            "if not self._direct or self.arrived or self.lock.locked():",
            "if not self._direct or self.lock.locked():",
        ),
        Mutant(
            "A thread writes in the middle of a frame of another.",
            "begun = self._direct  # False if another thread was faster",
            "begun = True",
            reason="only a switch of threads between two steps of the interpreter shows it",
        ),
        Mutant(
            "A thread writes without the lock.",
            "            with self.lock:\n                begun",
            "            with contextlib.nullcontext():\n                begun",
        ),
        Mutant(
            "A thread that writes blocks the others only after its system call.",
            "self._begun, self._direct = item, False",
            "self._begun = item",
        ),
        Mutant(
            "A frame that was written directly does not count.",
            "                        self.bytes_sent += size\n",
            "",
            within="FrameWriter._write_directly",
        ),
        Mutant(
            "A message that was written directly still counts as under way when audio follows.",
            "                            self._after_message = 0\n",
            "                            pass\n",
            tests=("tests/transports/test_websocket_close.py",),
        ),
        Mutant(
            "A frame that comes after the close frame is written.",
            "if not self._accepts or self.failure is not None:",
            "if self.failure is not None:",
        ),
        Mutant(
            "A frame that comes after a failure is queued.",
            "if not self._accepts or self.failure is not None:",
            "if not self._accepts:",
        ),
        Mutant(
            "The close frame comes behind queued audio.",
            "            self._drop_audio(0.0)\n",
            "",
            within="FrameWriter.send_close",
        ),
        Mutant(
            "Frames that have arrived come after the close frame.",
            "            self._queue_arrived()\n            self._drop_audio(0.0)\n",
            "            self._drop_audio(0.0)\n",
            within="FrameWriter.send_close",
        ),
        Mutant(
            "The close frame does not count as waiting.",
            "            self.bytes_waiting += close.size\n",
            "",
        ),
        Mutant(
            "Frames that have arrived and were not written do not count as lost.",
            "            self._queue_arrived()\n            unsent",
            "            unsent",
            within="FrameWriter.end",
        ),
        Mutant(
            "A message that was written in part does not count as lost.",
            "            messages.append(self._begun)\n",
            "            pass\n",
        ),
        Mutant(
            "A queue of exactly the limit is a failure.",
            "if self.bytes_waiting > self._max_bytes:",
            "if self.bytes_waiting >= self._max_bytes:",
        ),
        Mutant(
            "The memory of a queued frame beyond its bytes does not count.",
            "return len(self.frame) + _ITEM_BYTES",
            "return len(self.frame)",
        ),
        Mutant(
            "Dropped audio still counts for the limit of the queue.",
            "                self.bytes_waiting -= item.size\n",
            "                pass\n",
            within="FrameWriter._drop_audio",
        ),
        Mutant(
            "The newest audio is dropped.",
            "        for item in self._queue:\n            if item.audio and",
            "        for item in reversed(self._queue):\n            if item.audio and",
        ),
        Mutant(
            "More than a second of audio is dropped to the last frame.",
            "if item.audio and self._queued_audio > limit:",
            "if item.audio:",
        ),
        Mutant(
            "Audio that is dropped at the close counts as lost.",
            "self.audio_unsent += item.audio if limit else 0.0",
            "self.audio_unsent += item.audio",
        ),
        Mutant(
            "A short write is not continued.",
            "            if not item.rest:\n                self._begun = None\n",
            "            if True:\n                self._begun = None\n",
            within="FrameWriter._write",
        ),
        Mutant(
            "A write that failed is tried again.",
            "                self.failure = error\n                return False",
            "                return False",
            within="FrameWriter._write",
        ),
        Mutant(
            "A writer keeps the lock as long as the socket takes bytes.",
            "if began and self.progress_at - began >= _TIME_SLICE:",
            "if False:",
        ),
        Mutant(
            "A thread writes though the I/O thread waits for room.",
            "self._direct = done and self._accepts and self.is_plain",
            "self._direct = self._accepts and self.is_plain",
        ),
        Mutant(
            "A frame that arrives during a write waits for the next one.",
            "            if not self.arrived:\n                return wake_io\n",
            "            return wake_io\n",
            within="FrameWriter.flush",
        ),
        Mutant(
            "A socket that takes bytes slowly counts as one that takes none.",
            "            self.progress_at = monotonic()\n            began = began or self.progress_at\n",
            "            began = began or monotonic()\n",
            within="FrameWriter._write",
        ),
        Mutant(
            "What TLS adds to audio counts as a part of the message before it.",
            "return size + self._overhead * math.ceil(size / _CHUNK_BYTES)",
            "return size",
        ),
        Mutant(
            "What was dropped at the end still counts as waiting.",
            "            self._begun = None\n            self.bytes_waiting, self._queued_audio = 0, 0.0\n",
            "            self._begun = None\n",
            within="FrameWriter.end",
        ),
        Mutant(
            "Audio behind the last message counts as a part of it.",
            "held = max(0, _unacknowledged(self._sock) - after)",
            "held = max(0, _unacknowledged(self._sock))",
        ),
    ),
)
