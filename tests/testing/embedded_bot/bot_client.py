"""A client for tests of the embedded bot: raw frames over a library that the SDK does not use."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import groupby
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.wire import AudioRawFrame, Frame, MessageFrame, decode, encode

RATE = 16000
# The hangover of most tests, in seconds: short, to keep the tests fast.
QUICK = 0.2

CONFIG = [{"service": "tts", "options": [{"name": "voice", "value": "tone"}]}]
FILE = {"content": "look", "file": {"format": "text/plain", "source": {"type": "bytes", "bytes": "aGVsbG8="}}}

# The messages of a bot that writes the reply "One two. Three.".
WRITTEN = [
    "bot-llm-started",
    "bot-llm-text One",
    "bot-llm-text  two.",
    "bot-transcription One two.",
    "bot-llm-text  Three.",
    "bot-transcription Three.",
    "bot-llm-stopped",
]


class Client:
    """A client that sends and receives raw frames over `websockets`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._numbers = itertools.count(1)

    def send(self, type: str, data: Any = None, id: str = "id-1") -> None:
        self.send_json({"label": "rtvi-ai", "type": type, "id": id, "data": data})

    def send_json(self, message: Any) -> None:
        self.send_frame(MessageFrame(data=json.dumps(message)))

    def send_frame(self, frame: Frame) -> None:
        self.connection.send(encode(frame))

    def say(self, pcm: bytes, rate: int = RATE) -> None:
        for start in range(0, len(pcm), 640):
            self.send_frame(AudioRawFrame(audio=pcm[start : start + 640], sample_rate=rate))

    def receive(self) -> Frame:
        data = self.connection.recv(GUARD)
        assert isinstance(data, bytes)
        frame = decode(data)
        assert frame is not None
        return frame

    def until(self, type: str) -> list[Any]:
        """Return everything up to the first message of a type: messages as objects, other frames as they are."""
        items: list[Any] = []
        while True:
            frame = self.receive()
            items.append(json.loads(frame.data) if isinstance(frame, MessageFrame) else frame)
            if isinstance(frame, MessageFrame) and items[-1]["type"] == type:
                return items

    def until_id(self, id: str) -> list[Any]:
        """Return everything up to the first message with this id."""
        items: list[Any] = []
        while not items or not isinstance(items[-1], dict) or items[-1].get("id") != id:
            frame = self.receive()
            items.append(json.loads(frame.data) if isinstance(frame, MessageFrame) else frame)
        return items

    def rest(self) -> list[Any]:
        """Return everything up to the end of the connection."""
        items: list[Any] = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                frame = self.receive()
                items.append(json.loads(frame.data) if isinstance(frame, MessageFrame) else frame)
        return items

    def ask(self, type: str, data: Any = None) -> Any:
        """Send a message and return its answer; drop the messages before the answer."""
        number = f"ask-{next(self._numbers)}"
        self.send(type, data, number)
        return self.until_id(number)[-1]

    def act(self, name: str, /, id: str = "action", **arguments: Any) -> None:
        """Send an action, "service:action"."""
        self.send("action", action(name, **arguments), id)

    def message(self, type: str) -> dict[str, Any]:
        """Return the next message, which must be of this type."""
        (item,) = self.until(type)
        assert isinstance(item, dict)
        return item


def action(name: str, /, **arguments: Any) -> dict[str, Any]:
    """Return the data of an action, "service:action"."""
    service, _, called = name.partition(":")
    given = [{"name": name, "value": value} for name, value in arguments.items()]
    return {"service": service, "action": called, "arguments": given}


Talk = Callable[[EmbeddedBot], Client]


def names(items: list[Any]) -> list[str]:
    """Return types of messages and kinds of frames, without repetitions."""
    kinds = [item["type"] if isinstance(item, dict) else type(item).__name__ for item in items]
    return [kind for kind, _ in groupby(kinds)]


def outline(items: list[Any]) -> list[str]:
    """Return the same as `names()`, with the texts of the messages."""
    lines = []
    for item in items:
        data = item.get("data") if isinstance(item, dict) else None
        text = data.get("text") if isinstance(data, dict) else None
        name = item["type"] if isinstance(item, dict) else type(item).__name__
        lines.append(name if text is None else f"{name} {text}")
    return [line for line, _ in groupby(lines)]


def pcm_of(items: list[Any]) -> bytes:
    return b"".join(item.audio for item in items if isinstance(item, AudioRawFrame))


def threads_of_bots() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rtvi-bot")]


# The messages of the reply "Yes." to the user's speech or text.
ANSWER = [
    "user-llm-text",
    "bot-llm-started",
    "bot-llm-text",
    "bot-transcription",
    "bot-llm-stopped",
    "bot-tts-started",
    "AudioRawFrame",
    "bot-output",
    "bot-started-speaking",
    "bot-output",
    "bot-tts-text",
    "bot-tts-stopped",
    "AudioRawFrame",
    "bot-stopped-speaking",
]


def greeted(client: Client, version: str | None) -> tuple[list[Any], Any]:
    """Return the errors before bot-ready, and bot-ready."""
    client.send("client-ready", None if version is None else {"version": version}, id="abc")
    *warnings, ready = client.until("bot-ready")
    assert {item["id"] for item in [*warnings, ready]} == {"abc"}
    assert {item["type"] for item in warnings} <= {"error-response"}
    return [item["data"]["error"] for item in warnings], ready["data"]


def ask(url: str, method: str = "POST", body: bytes | None = b"{}", **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Return status, JSON body and headers of the response to an HTTP request."""
    names_and_values = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=body, method=method, headers=names_and_values)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=GUARD) as response:
            status, data, found = response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            status, data, found = error.code, error.read(), error.headers
    return status, json.loads(data) if data else None, {name.lower(): value for name, value in found.items()}
