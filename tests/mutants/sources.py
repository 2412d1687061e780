"""Mutants of the audio sources that need no device."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/media/sources.py",
    ("tests/media/test_sources.py", "tests/media/test_kinds.py", "tests/media/test_media.py"),
    (
        Mutant(
            "What is registered after the end is never called.",
            "        if self.is_over:\n            self.end()\n",
            "",
            within="SourceRun.when_over",
        ),
        Mutant(
            "A run whose last audio was sent does not count as sent.",
            "        self._sent = True\n",
            "",
            within="SourceRun.all_sent",
        ),
        Mutant(
            "What waits for the end of a run is called at each end.",
            "self._calls.pop()()",
            "self._calls[-1]()",
        ),
        Mutant("wait() ignores its limit.", "self._over.wait(Deadline(timeout))", "self._over.wait(Deadline(None))"),
        Mutant(
            "A read that got all does not move.",
            "self._position += len(data) // 2",
            "self._position += 0",
        ),
        Mutant(
            "A read moves beyond what there is.",
            "self._position += len(data) // 2",
            "self._position += len(data)",
        ),
        Mutant(
            "close() does not rewind.", "        self._position = 0\n", "        pass\n", within="MemorySource.close"
        ),
        Mutant("Half a sample is taken.", "if len(self._pcm) % 2:", "if False:"),
        Mutant("A change of the caller's buffer is sent.", "self._pcm = bytes(pcm)", "self._pcm = pcm"),
        Mutant(
            "A file of exactly 256 MiB is refused.",
            "if len(data) > MAX_WAV_FILE_BYTES:",
            "if len(data) >= MAX_WAV_FILE_BYTES:",
        ),
        Mutant("A file of any size is read in part.", "if len(data) > MAX_WAV_FILE_BYTES:", "if False:"),
        Mutant(
            "A file that has changed counts as the one that was read.",
            "return _version_of(self.path.stat()) != self._version",
            "return False",
        ),
        Mutant(
            "A file that is gone counts as changed.",
            "        except OSError:\n            return False\n",
            "        except OSError:\n            return True\n",
            within="WavSource.is_outdated",
        ),
        Mutant("A tone is longer than its duration.", "min(frames, self.total_frames - start)", "frames"),
        Mutant(
            "A read behind the end of a tone is negative.",
            "frames = max(0, min(frames, self.total_frames - start))",
            "frames = min(frames, self.total_frames - start)",
        ),
        Mutant("A tone starts again at each read.", "begin = 2 * start % len(self._table)", "begin = 0"),
        Mutant(
            "A long read of a tone ends with its table.",
            "while len(data) < 2 * frames:",
            "if len(data) < 2 * frames:",
        ),
        Mutant("A tone may have half of the sample rate.", "sample_rate_hz / 2 - 0.1", "sample_rate_hz / 2"),
    ),
)
