"""The line transport with video: JPEG pictures on a second connection. docs/guides/transport.md has the reasons."""

import contextlib
import json
import socket
import threading
from typing import Any

from rtvi_sync import DisconnectedError
from rtvi_sync.media import VideoFrame
from samples.line_transport.transport import LineTransport

SECONDS = 5  # until the bot has to be there, and to have read a picture


class VideoLineTransport(LineTransport):
    """A transport that also sends pictures, on a connection of their own: a line of JSON about each, then its bytes.

    A picture that cannot leave holds up no message there, and the camera's thread may wait for it: the next picture
    that it sends is the newest.
    """

    name = "video-lines"
    supports_video = True

    def __init__(self, url: str | None = None, quality: int = 80) -> None:
        super().__init__(url)
        self._quality = quality  # of the JPEGs, 0 to 100
        # Lets the camera and the screen take turns, however long one takes; nothing else asks for it.
        self._turn = threading.RLock()
        self._pictures: socket.socket | None = None  # guarded by `_lock`, as `_sock` is

    def send_video(self, frame: VideoFrame) -> None:
        """Send a picture of the camera."""
        self._send_picture("cam", frame)

    def send_screen(self, frame: VideoFrame) -> None:
        """Send a picture of the screen."""
        self._send_picture("screen", frame)

    def disconnect(self) -> None:
        """Close both connections."""
        super().disconnect()  # from here on no connection for pictures is opened
        with self._lock:
            pictures, self._pictures = self._pictures, None
        if pictures is not None:
            with contextlib.suppress(OSError):
                pictures.shutdown(socket.SHUT_RDWR)  # wakes a blocked sender
            pictures.close()

    def _send_picture(self, of: str, frame: VideoFrame) -> None:
        jpeg = _jpeg(frame, self._quality)
        about = {"type": "picture", "of": of, "width": frame.width, "height": frame.height, "bytes": len(jpeg)}
        try:
            with self._turn:
                (self._pictures or self._connect_pictures()).sendall(json.dumps(about).encode() + b"\n" + jpeg)
        except OSError as error:
            raise DisconnectedError(f"The bot takes no pictures: {error}") from error  # ends them, not the session

    def _connect_pictures(self) -> socket.socket:
        with self._lock:
            line = self._sock
            address = line.getpeername() if line is not None else None
        if address is None:
            raise DisconnectedError("The line to the bot is closed")
        pictures = socket.create_connection(address, SECONDS)
        with self._lock:
            if self._sock is line:
                self._pictures = pictures
                return pictures
        pictures.close()  # disconnect() was called while the picture was taken
        raise DisconnectedError("The line to the bot is closed")


def _jpeg(frame: VideoFrame, quality: int) -> bytes:
    import cv2

    image = cv2.cvtColor(frame.to_numpy(), cv2.COLOR_RGB2BGR)
    encoded: Any = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return bytes(encoded)
