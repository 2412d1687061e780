"""Performs the effects that every conversation with a bot has: answers, events and warnings."""

from __future__ import annotations

import logging

from ..concurrency.serial_queue import Item
from ..errors import ProtocolError
from ..events import RTVIEvent
from ..protocol import engine as protocol
from .dispatcher import Cause
from .publisher import EventPublisher

logger: logging.Logger = logging.getLogger(__name__)

# A bot that talks nonsense does so in every message: what it says is logged so often, and at DEBUG from then on.
_MAX_WARNINGS = 20


class Effects:
    """Hands what an engine makes of a bot's messages to those who wait and to those who listen.

    One thread at a time calls it, the one that delivers the messages.

    Args:
        publisher: queues the events.
    """

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher
        self._warnings = 0
        self._events: list[Item] = []  # not queued yet, and how many bytes they hold
        self._size = 0

    def perform(self, effect: protocol.Effect) -> None:
        """Perform an answer or a warning; what else there is, save events, concerns sessions only."""
        if isinstance(effect, protocol.Resolve):
            if effect.waiter is not None:
                effect.waiter.resolve(effect.message)
            else:
                logger.debug("No call waits for the answer with the id %.100r; it is an event only", effect.message.id)
        elif isinstance(effect, protocol.Reject):
            if effect.waiter is not None:
                effect.waiter.reject(effect.error)
        elif isinstance(effect, protocol.Warn):
            self.warn(effect.text)

    def warn(self, text: str) -> None:
        """Log what is odd about the bot, not too often."""
        self._warnings += 1
        logger.log(logging.WARNING if self._warnings <= _MAX_WARNINGS else logging.DEBUG, "%s", text)
        if self._warnings == _MAX_WARNINGS:
            logger.warning("The bot does so too often: the rest of this session's warnings is logged at DEBUG")

    def deliver(self, effect: protocol.Deliver, cause: Cause, received_at: float, size: int) -> None:
        """Perform an event, if anybody listens, as soon as `flush()` is called.

        Args:
            effect: of the engine.
            cause: the message that the engine made it of.
            received_at: seconds of the monotonic clock.
            size: bytes that the message holds, for the limit of the queue.
        """
        publisher = self._publisher
        event: RTVIEvent = effect.event
        if not publisher.has_listener(event):
            return
        try:
            data = effect.decode()
        except ProtocolError as error:
            self.warn(f"The bot sent a message that breaks the protocol; it is delivered as unknown_message. {error}")
            event, data = RTVIEvent.UNKNOWN_MESSAGE, effect.message
            if not publisher.has_listener(event):
                return
        self._events.append(publisher.item(event, data, received_at, cause, size))
        self._size += size

    def flush(self) -> None:
        """Queue the events. To be called after messages that came together, and before what they must precede."""
        if self._events:
            events, size = self._events, self._size
            self._events, self._size = [], 0
            self._publisher.enqueue(events, size)
