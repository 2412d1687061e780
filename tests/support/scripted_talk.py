"""A bot that is a function, whose answers the test scripts message by message, in the order of bots of RTVI 2.2."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from rtvi_sync import CloseInfo, MemoryTransport, RTVIClient, RTVIMessage
from rtvi_sync.media import NullSink
from rtvi_sync.transports.base import Inbound
from rtvi_sync.transports.memory import ready_bot
from tests.support.clients import memory_client, transport_of
from tests.support.slowness import GUARD
from tests.support.waiting import until

_segments: defaultdict[str, int] = defaultdict(itertools.count(1).__next__)

RATE = 24_000


def tone(seconds: float, level: int = 4000) -> bytes:
    """Return audible PCM of one level."""
    return level.to_bytes(2, "little", signed=True) * int(seconds * RATE)


def acknowledgement(question: RTVIMessage) -> list[RTVIMessage]:
    """Return how a bot of 2.2 tells that it has a text."""
    text = question.data["content"]
    return [
        RTVIMessage("bot-interrupted", None),
        RTVIMessage("user-input", {"text": text, "input_type": "chat", "msg_id": question.id}),
        RTVIMessage("user-llm-text", {"text": text}),
    ]


def written(text: str) -> list[RTVIMessage]:
    """Return a run of the model."""
    return [
        RTVIMessage("bot-llm-started", None),
        RTVIMessage("bot-llm-text", {"text": text}),
        RTVIMessage("bot-llm-stopped", None),
    ]


def begun(text: str) -> list[RTVIMessage]:
    """Return the messages with which a bot starts to speak a text: the first word precedes the report."""
    _segments.pop(text, None)
    return [_progress(text, text.split(" ")[0]), RTVIMessage("bot-started-speaking", None)]


def finished(text: str) -> list[RTVIMessage]:
    """Return how it ends."""
    return [_progress(text, text), RTVIMessage("bot-stopped-speaking", None)]


def _progress(text: str, spoken: str) -> RTVIMessage:
    data = {
        "text": text,
        "aggregated_by": "sentence",
        "segment_id": _segments[text],
        "will_be_spoken": True,
        "spoken_status": "completed" if spoken == text else "in-progress",
        "spoken_progress": {"accumulated_text": spoken, "remaining_text": text[len(spoken) :]},
    }
    return RTVIMessage("bot-output", data)


def said(text: str) -> list[RTVIMessage]:
    """Return a text that is written and spoken."""
    return [*written(text), *begun(text), *finished(text)]


def reply_of(text: str) -> str:
    return f"You said {text}"


class TalkingBot:
    """A bot of RTVI 2.2 that answers each typed text, unless it is told to wait.

    Args:
        reply: the answer to a text; None: only the acknowledgement, so that the test goes on with `says()`.
        goes_on: the messages after each answer.
        greeting: its speech as soon as it is ready.
    """

    def __init__(
        self,
        reply: Callable[[str], str | None] = reply_of,
        *,
        goes_on: Iterable[RTVIMessage] = (),
        greeting: str | None = None,
        audio: bool = False,
        spoken: Callable[[str], bytes] = lambda text: tone(0.1),
        version: str = "2.2.0",
    ) -> None:
        self.reply = reply
        self.goes_on = [*goes_on]
        self.greeting = greeting
        self.audio = audio
        self.spoken = spoken
        self.version = version
        self.questions: list[RTVIMessage] = []

    def __call__(self, transport: MemoryTransport, message: RTVIMessage) -> Iterable[Inbound]:
        if message.type == "client-ready":
            yield RTVIMessage("bot-ready", {"version": self.version}, message.id)
            if self.greeting is not None:
                yield from self._speech(transport, self.greeting)
        elif message.type == "send-text":
            yield from acknowledgement(message)
            self.questions.append(message)  # speech that a test releases now follows that
            text = self.reply(message.data["content"])
            if text is not None:
                yield from self._speech(transport, text)
            yield from self.goes_on
        elif message.type == "get-config":
            yield RTVIMessage("config", {"config": []}, message.id)
        else:
            yield from ready_bot(transport, message) or ()

    def _speech(self, transport: MemoryTransport, text: str) -> Iterable[Inbound]:
        yield from written(text)
        yield from begun(text)
        if self.audio:
            transport.receive_audio(self.spoken(text), RATE)
        yield from finished(text)

    def client(self, **options: Any) -> RTVIClient:
        """Return a client of the bot."""
        if self.audio:
            options = {"speaker": NullSink(), "enable_mic": False, "connect_timeout": GUARD, **options}
            return RTVIClient(transport=MemoryTransport(self, audio=True), **options)
        return memory_client(self, **options)

    def await_question(self, count: int = 1) -> RTVIMessage:
        """Wait until it was asked so often; return the last question."""
        until(lambda: len(self.questions) >= count)
        return self.questions[-1]


def says(client: RTVIClient, messages: Iterable[RTVIMessage]) -> None:
    """Let the bot of a client send messages."""
    for message in messages:
        transport_of(client).receive(message)


def hangs_up(client: RTVIClient, code: int = 1000) -> None:
    """Let the bot of a client end the session."""
    transport_of(client).end(CloseInfo(code=code, initiator="server"))
