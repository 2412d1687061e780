"""Another reader of WebSocket frames, based on websocket-client's, to compare the package's reader with."""

from __future__ import annotations

from websocket import ABNF, WebSocketException, WebSocketTimeoutException, frame_buffer

from rtvi_sync.transports.websocket_frames import FrameError

CONTROL_OPCODES = (ABNF.OPCODE_CLOSE, ABNF.OPCODE_PING, ABNF.OPCODE_PONG)
MAX_CONTROL_BYTES = 125
MAX_FRAGMENTS = 262_144


class Starved(WebSocketTimeoutException):
    """More bytes are needed. websocket-client keeps a half-read frame over a time-out, and this is one to it."""


class OracleReader(frame_buffer):
    """websocket-client's reader, and the checks that it leaves out."""

    def __init__(self, max_message_bytes: int) -> None:
        # To websocket-client half a character at the end is none: UTF-8 is looked at below.
        super().__init__(self._take, skip_utf8_validation=True)
        self._max_message_bytes = max_message_bytes
        self._input = b""
        self._wanted = 0
        self._fragments = b""
        self._fragments_left = MAX_FRAGMENTS
        self._fragments_opcode: int | None = None

    def runs(self, data: bytes):
        """Yield as `FrameReader.runs()`, but each message as a run of its own."""
        self._input += data
        while len(self._input) >= self._wanted:
            try:
                frame = self.recv_frame()
            except Starved:
                return
            except WebSocketException as error:
                raise FrameError(f"The server sent an invalid WebSocket frame: {error}", 1002) from None
            assert isinstance(frame.data, bytes)
            if frame.opcode in CONTROL_OPCODES:
                if frame.opcode == ABNF.OPCODE_CLOSE and not is_utf_8(frame.data[2:]):
                    raise FrameError("The server sent an invalid WebSocket frame: Invalid close frame.", 1002)
                yield frame.opcode, [frame.data]
                continue
            message = self._assemble(frame.opcode, bool(frame.fin), frame.data)
            if message is not None:
                yield message[0], [message[1]]

    def recv_length(self) -> None:
        """Check the header before waiting for any payload."""
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
            if not fin or self.length > MAX_CONTROL_BYTES:
                raise FrameError("The server sent a fragmented or too long control frame", 1002)
        elif self.length + len(self._fragments) > self._max_message_bytes:
            raise FrameError(
                f"The server sent a message of more than {self._max_message_bytes} bytes; "
                "the transport's max_inbound_message_size sets the limit",
                1009,
            )

    def _take(self, size: int) -> bytes:
        if len(self._input) < size:
            self._wanted = size
            raise Starved("more bytes are needed")
        self._wanted = 0
        taken, self._input = self._input[:size], self._input[size:]
        return taken

    def _assemble(self, opcode: int, final: bool, payload: bytes) -> tuple[int, bytes] | None:
        if (opcode == ABNF.OPCODE_CONT) != (self._fragments_opcode is not None):
            raise FrameError("The server sent a fragment out of place", 1002)
        if self._fragments_opcode is None:
            self._fragments_opcode = opcode
            self._fragments_left = MAX_FRAGMENTS
        self._fragments_left -= 1
        if self._fragments_left < 0:
            raise FrameError(f"The server sent a message in more than {MAX_FRAGMENTS} fragments", 1008)
        self._fragments += payload
        if not final:
            return None
        opcode, payload = self._fragments_opcode, self._fragments
        self._fragments, self._fragments_opcode = b"", None
        if opcode == ABNF.OPCODE_TEXT and not is_utf_8(payload):
            raise FrameError("The server sent a text message that is not UTF-8", 1007)
        return opcode, payload


def is_utf_8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
