"""Performs the effects that every conversation with a bot has: answers, events and warnings."""

from __future__ import annotations

import logging

from .announce import Announcer
from .concurrency.pending import Pending
from .errors import ProtocolError
from .events import RTVIEvent
from .messages import RTVIMessage
from .protocol import engine as protocol

logger: logging.Logger = logging.getLogger(__name__)

# A bot that talks nonsense does so in every message: what it says is logged so often, and at DEBUG from then on.
_MAX_WARNINGS = 20


class Effects:
    """Hands what an engine makes of a bot's messages to those who wait and to those who listen.

    One thread at a time calls it, the one that delivers the messages.

    Args:
        announcer: queues the events.
        pending: the calls that wait for an answer.
    """

    def __init__(self, announcer: Announcer, pending: Pending[RTVIMessage]) -> None:
        self._announcer = announcer
        self._pending = pending
        self._warnings = 0

    def perform(self, effect: protocol.Effect, size: int) -> None:
        """Perform an answer, an event or a warning; what else there is concerns sessions only.

        Args:
            effect: of the engine.
            size: bytes that the message holds, for the limit of the queue.
        """
        if isinstance(effect, protocol.Deliver):
            self._deliver(effect, size)
        elif isinstance(effect, protocol.Resolve):
            if effect.message.id is not None and not self._pending.resolve(effect.message.id, effect.message):
                logger.debug("The answer with the id %.100r comes too late; it is an event only", effect.message.id)
        elif isinstance(effect, protocol.Reject):
            self._pending.reject(effect.id, effect.error)
        elif isinstance(effect, protocol.Warn):
            self.warn(effect.text)

    def warn(self, text: str) -> None:
        """Log what is odd about the bot, not too often."""
        self._warnings += 1
        logger.log(logging.WARNING if self._warnings <= _MAX_WARNINGS else logging.DEBUG, "%s", text)
        if self._warnings == _MAX_WARNINGS:
            logger.warning("The bot does so too often: the rest of this session's warnings is logged at DEBUG")

    def _deliver(self, effect: protocol.Deliver, size: int) -> None:
        if not self._announcer.wants(effect.event):
            return
        try:
            data = effect.decode()
        except ProtocolError as error:
            self.warn(f"The bot sent a message that breaks the protocol; it is delivered as unknown_message. {error}")
            self._announcer.event(RTVIEvent.UNKNOWN_MESSAGE, effect.message, effect.message, size)
        else:
            self._announcer.event(effect.event, data, effect.message, size)
