"""Mutants of the audio sinks that need no device."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/media/sinks.py",
    ("tests/media/test_sinks.py",),
    (
        Mutant("A BytesSink is full one byte early.", "if size > self._max_bytes:", "if size >= self._max_bytes:"),
        Mutant(
            "Audio that is refused takes the room of later audio.",
            "        size = self._size + len(pcm)\n        if size > self._max_bytes:",
            "        size = self._size = self._size + len(pcm)\n        if size > self._max_bytes:",
        ),
        Mutant("Another sample rate is appended.", "elif sample_rate_hz != self._rate:", "elif False:"),
        Mutant(
            "A short write of a header is not continued.",
            "    while view:\n",
            "    if view:\n",
            within="_write_all",
        ),
        Mutant(
            "A WAV file holds one byte less than its format allows.",
            "if self._size + len(pcm) > pcm_tools.MAX_WAV_DATA_BYTES:",
            "if self._size + len(pcm) >= pcm_tools.MAX_WAV_DATA_BYTES:",
        ),
        Mutant(
            "Audio after a failed write comes behind a gap.",
            "file.seek(pcm_tools.WAV_HEADER_BYTES + self._size)",
            "file.seek(0, 2)",
        ),
        Mutant(
            "A short write of audio is not continued.",
            "            while view:\n",
            "            if view:\n",
        ),
        Mutant(
            "A short write counts as a whole one.",
            "self._size += count",
            "self._size += len(pcm)",
        ),
        Mutant(
            "Half a sample of a failed write is kept.",
            "            self._size -= self._size % 2\n",
            "",
        ),
        Mutant(
            "A file without room for its header stays.",
            "                        remove_part(file)\n",
            "                        pass\n",
        ),
        Mutant(
            "The header lags behind by more than 0.25 s.",
            "if self._size - self._size_in_header >= 2 * self._HEADER_LAG * self._rate:",
            "if self._size - self._size_in_header > 4 * self._HEADER_LAG * self._rate:",
        ),
        Mutant(
            "The rest of a failed write stays in the file.",
            "file.truncate(pcm_tools.WAV_HEADER_BYTES + self._size)",
            "pass",
        ),
        Mutant(
            "The file stays open if its last header cannot be written.",
            "            with self._opened() as file:\n",
            "            file = self._opened()\n            if True:\n",
        ),
        Mutant(
            "The end of resampled audio is lost.",
            "if self._converter is not None and not self._is_full and (rest",
            "if False and (rest",
        ),
        Mutant(
            "A file that was moved away is missing its successor.",
            "if self._file is None and self._created and self._is_moved_away():",
            "if False:",
        ),
        Mutant(
            "A new file begins with the size of the one that was moved away.",
            "self._created, self._converter, self._size = False, None, 0",
            "self._created, self._converter = False, None",
        ),
        Mutant(
            "A file whose directory is away counts as moved.",
            "return isinstance(error, FileNotFoundError) and os.path.isdir(_directory_of(self.path))",
            "return isinstance(error, FileNotFoundError)",
        ),
        Mutant(
            "Another recording in the file's place is appended to.",
            "self._check_identity(file)",
            "pass",
        ),
        Mutant(
            "A file that was not completed is not recognised.",
            "if not is_whole and (self._is_complete or not os.path.samestat(found, self._written)):",
            "if not is_whole:",
        ),
        Mutant(
            "The file's descriptor leaks if it is not the recording.",
            "with file, contextlib.suppress(OSError):",
            "os.dup(file.fileno())\n                with file, contextlib.suppress(OSError):",
        ),
        Mutant(
            "on_drop is not called.",
            "self._on_drop()",
            "pass",
        ),
        Mutant(
            "Two sinks of one file by different paths have their own leases.",
            "return os.path.realpath(self.path)",
            "return os.path.abspath(self.path)",
        ),
    ),
)
