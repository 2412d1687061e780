"""WebSocket frames (RFC 6455, section 5): reading a server's frames, and making a client's."""

from __future__ import annotations

import importlib.util
import os
import struct
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from typing import Final

from ..concurrency.lifecycle import register_for_fork
from ..errors import ProtocolError

#: The opcodes of frames.
CONT: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

_KINDS = (CONT, TEXT, BINARY, CLOSE, PING, PONG)
_FIRST_CONTROL = CLOSE
_FIN, _RESERVED, _OPCODE = 0x80, 0x70, 0x0F  # masks of the first byte
_MASKED, _LENGTH = 0x80, 0x7F  # masks of the second byte
_SHORTEST = 2  # bytes of the shortest frame
_IN_2_BYTES, _IN_8_BYTES = 126, 127  # lengths that mean: the length follows in 2 or 8 bytes
_UNFRAGMENTED_BINARY = _FIN | BINARY
# Messages. The I/O thread serves no other connection while it delivers a run; 64 events take about 0.25 ms.
_LONGEST_RUN = 64
_MAX_CONTROL_BYTES = 125
# A message of 16 MB in fragments of 64 bytes. A bound, because empty fragments without end never get too large.
_MAX_FRAGMENTS = 262_144
# The valid codes of a close frame: those that RFC 6455 and IANA's registry allow on the wire, and the private ones.
_CLOSE_CODES = frozenset([1000, 1001, 1002, 1003, *range(1007, 1015), *range(3000, 5000)])


class FrameError(ProtocolError):
    """The error of a server that broke RFC 6455; `code` is the close code. Applications get a `ProtocolError`."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class FrameReader:
    """The parser of a byte stream into messages and control frames. Used on the I/O thread only.

    It only keeps the incomplete frame and the fragments of a message. The read buffer is the caller's, so that
    thousands of connections need one buffer.

    Args:
        max_message_bytes: larger messages are refused with 1009, before their payload is read.
    """

    __slots__ = ("_begun", "_fragments", "_fragments_left", "_kind", "_max_message_bytes", "_needed")

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        # An incomplete frame, and how many bytes of it are needed before it is parsed again: the time for a message
        # that arrives in small reads is then proportional to its size, not to its square.
        self._begun = bytearray()
        self._needed = _SHORTEST
        self._fragments = bytearray()
        self._fragments_left = 0
        self._kind: int | None = None  # of the message whose fragments these are

    def runs(self, data: bytes) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the messages that these bytes complete: an opcode, and the payloads of consecutive messages.

        One item has up to 64 consecutive messages, or one frame.

        Args:
            data: the bytes read. The iterator must be exhausted before the next call.

        Raises:
            FrameError: the server broke the protocol.
        """
        position, message = self._resume(data) if self._begun else (0, None)
        if message is not None:
            yield message
        while True:
            run, position = self._read_run(data, position)
            if run:
                yield BINARY, run
            if len(run) == _LONGEST_RUN:
                continue
            frame = self._frame(data, position) if len(data) - position >= _SHORTEST else None
            if frame is None:
                break
            first, payload, position = frame
            message = self._message(first, payload)
            if message is not None:
                yield message
        self._begun += data[position:]

    def _read_run(self, data: bytes, position: int) -> tuple[list[bytes], int]:
        """Return the unfragmented binary messages of less than 64 KiB at `position`, and the position behind them.

        Nearly all messages are such. `_frame()` handles all other frames, incomplete and invalid ones, too.
        """
        run: list[bytes] = []
        if self._kind is not None:
            return run, position
        end, max_bytes = len(data), self._max_message_bytes
        while end - position >= _SHORTEST and data[position] == _UNFRAGMENTED_BINARY and len(run) < _LONGEST_RUN:
            size, start = data[position + 1], position + 2
            if size == _IN_2_BYTES and end - position >= 4:
                size, start = data[start] << 8 | data[position + 3], position + 4
            elif size >= _IN_2_BYTES:
                break
            if start + size > end or size > max_bytes:
                break
            position = start + size
            run.append(data[start:position])
        return run, position

    def _resume(self, data: bytes) -> tuple[int, tuple[int, list[bytes]] | None]:
        """Return the position in `data` at which the incomplete frame ends, and the message that it completes."""
        position = 0
        while True:
            lacking = self._needed - len(self._begun)
            self._begun += data[position : position + lacking]
            if len(self._begun) < self._needed:
                return len(data), None
            position += lacking
            frame = self._frame(self._begun, 0)
            if frame is not None:
                self._begun.clear()
                return position, self._message(*frame[:2])

    def _frame(self, data: bytes | bytearray, position: int) -> tuple[int, bytes, int] | None:
        """Return the first byte and the payload of the frame at `position`, and the position behind it.

        Returns:
            None if the frame is incomplete; `_needed` is then the number of bytes to wait for.
        """
        available = len(data) - position
        first, second = data[position], data[position + 1]
        size, start = second & _LENGTH, 2
        if size >= _IN_2_BYTES:
            start = 4 if size == _IN_2_BYTES else 10
            if available < start:
                self._needed = start
                return None
            size = int.from_bytes(data[position + 2 : position + start], "big")
        self._check_header(first, second, size)
        if available < start + size:
            self._needed = start + size
            return None
        self._needed = _SHORTEST
        following = position + start + size
        # Through a memoryview, because a slice of a bytearray would be one more copy.
        return first, bytes(memoryview(data)[position + start : following]), following

    def _check_header(self, first: int, second: int, size: int) -> None:
        """Refuse an invalid header, before its payload is waited for."""
        kind = first & _OPCODE
        if first & _RESERVED:
            raise FrameError("The server set a reserved bit though no extension was agreed on", 1002)
        if kind not in _KINDS:
            raise FrameError(f"The server sent a frame of the unknown kind {kind}", 1002)
        if second & _MASKED:
            raise FrameError("The server masked a frame", 1002)
        if kind >= _FIRST_CONTROL:
            if not first & _FIN or size > _MAX_CONTROL_BYTES:
                raise FrameError("The server sent a fragmented or too long control frame", 1002)
        elif size + len(self._fragments) > self._max_message_bytes:
            raise FrameError(
                f"The server sent a message of more than {self._max_message_bytes} bytes; "
                "the transport's max_inbound_message_size sets the limit",
                1009,
            )

    def _message(self, first: int, payload: bytes) -> tuple[int, list[bytes]] | None:
        """Return the message or control frame that a frame completes; None if it is a fragment and others follow."""
        kind = first & _OPCODE
        if kind >= _FIRST_CONTROL:
            if kind == CLOSE:
                _check_close(payload)
            return kind, [payload]
        if (kind == CONT) != (self._kind is not None):
            raise FrameError("The server sent a fragment out of place", 1002)
        if self._kind is None:
            if first & _FIN:
                return _checked(kind, payload)
            self._kind = kind
            self._fragments_left = _MAX_FRAGMENTS
        self._fragments_left -= 1
        if self._fragments_left < 0:
            raise FrameError(f"The server sent a message in more than {_MAX_FRAGMENTS} fragments", 1008)
        self._fragments += payload
        if not first & _FIN:
            return None
        kind, payload = self._kind, bytes(self._fragments)
        self._kind = None
        self._fragments.clear()
        return _checked(kind, payload)


def _checked(kind: int, payload: bytes) -> tuple[int, list[bytes]]:
    if kind == TEXT and not _is_utf_8(payload):
        raise FrameError("The server sent a text message that is not UTF-8", 1007)
    return kind, [payload]


def _check_close(payload: bytes) -> None:
    """Refuse an invalid close frame: RFC 6455, 5.5.1, allows no payload, or a code of two bytes and a reason."""
    if not payload:
        return
    code = int.from_bytes(payload[:2], "big")
    if len(payload) > 1 and code not in _CLOSE_CODES:
        raise FrameError(f"The server sent an invalid WebSocket frame: Invalid close opcode {code}", 1002)
    if len(payload) == 1 or not _is_utf_8(payload[2:]):
        raise FrameError("The server sent an invalid WebSocket frame: Invalid close frame.", 1002)


def _is_utf_8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- writing ----------------------------------------------------------------------------------------------------------

_SHORT, _MEDIUM, _LONG = struct.Struct("!BB4s"), struct.Struct("!BBH4s"), struct.Struct("!BBQ4s")
_KEY = struct.Struct("4s")
_KEYS = 256


def masked_frame(opcode: int, payload: bytes) -> bytes:
    """Return a complete frame, masked as a client's must be. Any thread may call it.

    Args:
        opcode: opcode of a message or a control frame.
        payload: the bytes, at most 125 in a control frame.
    """
    first, size, key = _FIN | opcode, len(payload), _keys.draw()
    if size < _IN_2_BYTES:
        header = _SHORT.pack(first, _MASKED | size, key)
    elif size < 1 << 16:
        header = _MEDIUM.pack(first, _MASKED | _IN_2_BYTES, size, key)
    else:
        header = _LONG.pack(first, _MASKED | _IN_8_BYTES, size, key)
    return header + _mask(payload, key)


class _Keys:
    """The source of masking keys. Each frame has its own, unpredictable key (RFC 6455, 10.3).

    256 keys are fetched at a time, because a call for random bytes of the system costs as much as the rest of a frame.
    Any thread may draw, also in a signal handler or a finalizer: `next()` of this iterator is one step of the
    interpreter.
    """

    def __init__(self) -> None:
        self._block: Iterator[tuple[bytes]] = iter(())
        register_for_fork(self)

    def draw(self) -> bytes:
        """Return a key of 4 bytes."""
        while True:
            for (key,) in self._block:
                return key
            self._block = _KEY.iter_unpack(os.urandom(_KEYS * _KEY.size))

    def after_fork_in_child(self) -> None:
        """Drop the keys that the parent still uses."""
        self._block = iter(())


_keys = _Keys()


def _mask_by_number(data: bytes, key: bytes) -> bytes:
    """Mask without a compiled extension, by an xor of integers."""
    size = len(data)
    repeated = key * (size // 4) + key[: size % 4]
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")


def _find_mask() -> Callable[[bytes, bytes], bytes]:
    """Return the function that masks with a key of 4 bytes: the extension of `websockets`, if it is installed."""
    try:
        package = importlib.util.find_spec("websockets")
        # The module is loaded without its package, which takes longer to import than this one.
        spec = package and PathFinder.find_spec("websockets.speedups", package.submodule_search_locations)
        if spec and spec.loader:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            mask: Callable[[bytes, bytes], bytes] = module.apply_mask
            return mask
    except (ImportError, ValueError, AttributeError):  # another build, or another module of that name
        pass
    return _mask_by_number


_mask = _find_mask()
