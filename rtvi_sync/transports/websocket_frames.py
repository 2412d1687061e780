"""WebSocket frames on top of websocket-client's reader, with the checks that it leaves out."""

from __future__ import annotations

from collections.abc import Iterator

from websocket import ABNF, WebSocketException, WebSocketTimeoutException, frame_buffer

from ..errors import ProtocolError

CONTROL_OPCODES = (ABNF.OPCODE_CLOSE, ABNF.OPCODE_PING, ABNF.OPCODE_PONG)
_MAX_CONTROL_BYTES = 125
# A message of 16 MB in pieces of 256 bytes. One that goes on and on in pieces of nothing never gets too large.
_MAX_FRAGMENTS = 65_536


class FrameError(ProtocolError):
    """The server broke RFC 6455; `code` is the close code to answer with. Programs see a plain `ProtocolError`."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Starved(WebSocketTimeoutException):
    """More bytes are needed. websocket-client keeps a half-read frame over a time-out, and this is one to it."""


class FrameReader(frame_buffer):
    """Cuts a byte stream into messages and control frames. Used by the io thread alone.

    Args:
        max_message_bytes: larger messages are refused with 1009, before their payload is read.
    """

    def __init__(self, max_message_bytes: int) -> None:
        super().__init__(self._take, skip_utf8_validation=False)
        self._max_message_bytes = max_message_bytes
        self._input = bytearray()
        self._position = 0
        self._wanted = 0  # bytes without which there is nothing to do
        self._fragments = bytearray()
        self._fragments_left = _MAX_FRAGMENTS
        self._fragments_opcode: int | None = None

    def feed(self, data: bytes) -> None:
        """Add bytes from the wire."""
        if self._position:
            del self._input[: self._position]
            self._position = 0
        self._input += data

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Opcode and payload of each complete message or control frame in what was fed.

        Raises:
            FrameError: the server broke the protocol.
        """
        while len(self._input) - self._position >= self._wanted:
            try:
                frame = self.recv_frame()
            except _Starved:
                return
            except WebSocketException as error:
                raise FrameError(f"The server sent an invalid WebSocket frame: {error}", 1002) from None
            if frame.opcode in CONTROL_OPCODES:
                yield frame.opcode, _bytes(frame)
                continue
            message = self._assemble(frame.opcode, bool(frame.fin), _bytes(frame))
            if message is not None:
                yield message

    def recv_length(self) -> None:
        """Checks what the header says before any payload is waited for."""
        super().recv_length()
        assert self.header is not None
        assert self.length is not None
        fin, rsv1, rsv2, rsv3, opcode, has_mask, _ = self.header
        if rsv1 or rsv2 or rsv3:
            raise FrameError("The server set a reserved bit though no extension was agreed on", 1002)
        if opcode not in ABNF.OPCODES:
            raise FrameError(f"The server sent a frame of the unknown kind {opcode}", 1002)
        if has_mask:
            raise FrameError("The server masked a frame", 1002)
        if opcode in CONTROL_OPCODES:
            if not fin or self.length > _MAX_CONTROL_BYTES:
                raise FrameError("The server sent a fragmented or too long control frame", 1002)
        elif self.length + len(self._fragments) > self._max_message_bytes:
            raise FrameError(
                f"The server sent a message of more than {self._max_message_bytes} bytes; "
                "WebSocketTransport(max_inbound_message_size=...) sets the limit",
                1009,
            )

    def _take(self, size: int) -> bytes:
        # All or nothing: what frame_buffer is given in parts it keeps as a list that it walks for every further part,
        # so that a message which trickles in would cost time and memory by the square of its size.
        start = self._position
        if len(self._input) - start < size:
            self._wanted = size
            raise _Starved("more bytes are needed")
        self._wanted = 0
        self._position = start + size
        return bytes(memoryview(self._input)[start : self._position])

    def _assemble(self, opcode: int, final: bool, payload: bytes) -> tuple[int, bytes] | None:
        if (opcode == ABNF.OPCODE_CONT) != (self._fragments_opcode is not None):
            raise FrameError("The server sent a fragment out of place", 1002)
        if self._fragments_opcode is None:
            if final:
                return self._checked(opcode, payload)
            self._fragments_opcode = opcode
            self._fragments_left = _MAX_FRAGMENTS
        self._fragments_left -= 1
        if self._fragments_left < 0:
            raise FrameError(f"The server sent a message in more than {_MAX_FRAGMENTS} fragments", 1008)
        self._fragments += payload
        if not final:
            return None
        opcode, payload = self._fragments_opcode, bytes(self._fragments)
        self._fragments, self._fragments_opcode = bytearray(), None
        return self._checked(opcode, payload)

    @staticmethod
    def _checked(opcode: int, payload: bytes) -> tuple[int, bytes]:
        if opcode == ABNF.OPCODE_TEXT:
            try:
                payload.decode()
            except UnicodeDecodeError:
                raise FrameError("The server sent a text message that is not UTF-8", 1007) from None
        return opcode, payload


def _bytes(frame: ABNF) -> bytes:
    return frame.data if isinstance(frame.data, bytes) else frame.data.encode()
