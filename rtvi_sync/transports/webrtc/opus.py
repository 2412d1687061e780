"""Opus by the libopus that PyAV brings along.

PyAV itself offers no concealment of lost packets, no mono, and no rates other than 48 kHz.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import weakref
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Any, Final

#: The sample rates that Opus takes.
RATES: Final = (8000, 12000, 16000, 24000, 48000)
FRAMES_PER_SECOND: Final = 50

# Not the mode for voices (2048), which models the voice and not its samples: it takes three times as long to encode,
# and its output correlates with speech by 0.95. This mode reaches 0.996, at the bit rates below.
_APPLICATION_AUDIO = 2049
_SET_BITRATE, _SET_COMPLEXITY = 4002, 4010
# 5 of 10: a third less work than 10, and no difference that a bot hears.
_COMPLEXITY = 5
_MAX_PACKET_BYTES = 1500
# The longest packet of Opus, in seconds.
_MAX_PACKET = 0.12


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return libopus; None if it is not found."""
    for path in _paths():
        try:
            return _declared(ctypes.CDLL(path))
        except (OSError, AttributeError):  # it is no library, or has not these functions
            continue
    return None


def _paths() -> Iterator[str]:
    package = Path(importlib.import_module("av").__file__ or "").parent
    for folder in (package.parent / "av.libs", package / ".dylibs", package):
        for path in sorted(folder.glob("*opus*")):
            if any(suffix in path.name for suffix in (".so", ".dylib", ".dll")):
                yield str(path)
    found = find_library("opus")
    if found is not None:
        yield found


def _declared(opus: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for name, result, arguments in (
        ("opus_encoder_create", pointer, [ctypes.c_int32, number, number, pointer]),
        ("opus_encode", ctypes.c_int32, [pointer, ctypes.c_char_p, number, ctypes.c_char_p, ctypes.c_int32]),
        ("opus_encoder_ctl", number, [pointer, number]),  # and one more, because it is variadic
        ("opus_encoder_destroy", None, [pointer]),
        ("opus_decoder_create", pointer, [ctypes.c_int32, number, pointer]),
        ("opus_decode", number, [pointer, ctypes.c_char_p, ctypes.c_int32, ctypes.c_char_p, number, number]),
        ("opus_decoder_destroy", None, [pointer]),
    ):
        function: Any = getattr(opus, name)
        function.restype, function.argtypes = result, arguments
    return opus


class Encoder:
    """An encoder of mono speech. Used by one thread at a time.

    Args:
        rate_hz: one of `RATES`.
        bitrate: bits per second. None: a rate that suits speech at this sample rate.

    Raises:
        RuntimeError: libopus is not found.
    """

    def __init__(self, rate_hz: int, bitrate: int | None = None) -> None:
        self._opus = _loaded()
        self.rate_hz: int = rate_hz
        self._state = self._opus.opus_encoder_create(rate_hz, 1, _APPLICATION_AUDIO, None)
        _free_with(self, self._opus.opus_encoder_destroy, self._state)
        # No copies of lost packets (FEC): aiortc, which bots run on, does not look for them.
        for setting, value in (
            (_SET_BITRATE, bitrate or (48_000 if rate_hz <= 16000 else 64_000)),
            (_SET_COMPLEXITY, _COMPLEXITY),
        ):
            self._opus.opus_encoder_ctl(self._state, setting, ctypes.c_int32(value))
        self._buffer = ctypes.create_string_buffer(_MAX_PACKET_BYTES)

    def encode(self, pcm: bytes) -> bytes:
        """Return the packet of a frame of 10 or 20 ms."""
        size = self._opus.opus_encode(self._state, pcm, len(pcm) // 2, self._buffer, _MAX_PACKET_BYTES)
        if size < 0:
            raise ValueError(f"libopus cannot encode {len(pcm)} bytes at {self.rate_hz} Hz ({size})")
        return self._buffer.raw[:size]


class Decoder:
    """A decoder to mono. Used by one thread at a time.

    Args:
        rate_hz: one of `RATES`.

    Raises:
        RuntimeError: libopus is not found.
    """

    def __init__(self, rate_hz: int) -> None:
        self._opus = _loaded()
        self._state = self._opus.opus_decoder_create(rate_hz, 1, None)
        _free_with(self, self._opus.opus_decoder_destroy, self._state)
        self._max_samples = round(rate_hz * _MAX_PACKET)
        self._buffer = ctypes.create_string_buffer(2 * self._max_samples)
        self._samples = rate_hz // FRAMES_PER_SECOND  # of the last packet

    def decode(self, packet: bytes) -> bytes:
        """Return the samples of a packet. A damaged packet counts as lost."""
        samples = self._decode(packet, self._max_samples, 0) if packet else None
        if samples is None:
            return self.conceal(None)
        self._samples = len(samples) // 2
        return samples

    def conceal(self, following: bytes | None) -> bytes:
        """Return samples in place of a lost packet.

        Args:
            following: the packet after it, which may hold a copy of it. None: that packet is lost, too.
        """
        return self._decode(following, self._samples, 1 if following else 0) or bytes(2 * self._samples)

    def _decode(self, packet: bytes | None, samples: int, fec: int) -> bytes | None:
        count = self._opus.opus_decode(self._state, packet, len(packet or b""), self._buffer, samples, fec)
        return self._buffer.raw[: 2 * count] if count > 0 else None


def _free_with(owner: object, destroy: Callable[[int], None], state: int) -> None:
    """Free the state of libopus when its owner is dropped."""
    # Not at the interpreter's exit: the session of another thread may still use it, and libopus would end the process.
    weakref.finalize(owner, destroy, state).atexit = False


def _loaded() -> ctypes.CDLL:
    opus = library()
    if opus is None:
        raise RuntimeError("libopus is not found")
    return opus
