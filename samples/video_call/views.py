"""Where the bot's pictures are shown: a window, or a folder."""

import os
import sys
from pathlib import Path
from typing import Any, Protocol

from rtvi_sync.media import VideoFrame


class View(Protocol):
    """A place for pictures."""

    def show(self, picture: VideoFrame) -> bool:
        """Show a picture; return False if the user has seen enough."""

    def summary(self) -> str:
        """Return a sentence about the pictures shown."""


class Window:
    """A window, which OpenCV opens on the main thread; q closes it."""

    TITLE = "The bot (q ends the call)"

    def __init__(self) -> None:
        import cv2

        self._cv2: Any = cv2
        self._count = 0

    def show(self, picture: VideoFrame) -> bool:
        """Show a picture in place of the last one."""
        self._cv2.imshow(self.TITLE, self._cv2.cvtColor(picture.to_numpy(), self._cv2.COLOR_RGB2BGR))
        self._count += 1
        return bool(self._cv2.waitKey(1) & 0xFF != ord("q"))

    def summary(self) -> str:
        """Return how many pictures there were."""
        return f"The bot has shown {self._count} pictures."


class Folder:
    """A folder, in which each picture is a file."""

    def __init__(self, path: Path) -> None:
        import cv2

        self._cv2: Any = cv2
        self._path = path
        self._count = 0
        path.mkdir(parents=True, exist_ok=True)

    def show(self, picture: VideoFrame) -> bool:
        """Write a picture."""
        self._count += 1
        file = self._path / f"{self._count:05}.jpg"
        self._cv2.imwrite(str(file), self._cv2.cvtColor(picture.to_numpy(), self._cv2.COLOR_RGB2BGR))
        return True

    def summary(self) -> str:
        """Return how many pictures there are, and where."""
        return f"The bot's {self._count} pictures are in {self._path}."


def has_display() -> bool:
    """Return whether a window can be opened."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
