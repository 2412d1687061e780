"""Handshake of the embedded bot: its response to `client-ready`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from rtvi_sync._version import __version__
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.testing.embedded_bot.bot_version import negotiate
from rtvi_sync.testing.embedded_bot.config import LiveConfig, read_config
from rtvi_sync.testing.embedded_bot.messenger import MessageHandler, Messenger
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.replies import ReplyPlayer
from rtvi_sync.testing.embedded_bot.script import Message

logger: logging.Logger = package_logger(__name__)

# The protocol versions from which on bots of Pipecat send these fields in `bot-ready`.
_ABOUT_SINCE: Final = (1, 1)
_CAPABILITIES_SINCE: Final = (2, 2)


class Handshake:
    """The handshake with one client, on the thread of the session.

    Args:
        messenger: sends the response, and is given the client's generation.
        config: of the session.
        requested: the config in the connect request, any JSON; None if it had none.
        options: of the bot.
        reply_player: greets the user.
        ready: False: the bot never becomes ready.
    """

    def __init__(
        self,
        messenger: Messenger,
        config: LiveConfig,
        requested: Any,
        options: BotOptions,
        reply_player: ReplyPlayer,
        *,
        ready: bool,
    ) -> None:
        self._messenger = messenger
        self._config = config
        self._requested = requested
        self._options = options
        self._reply_player = reply_player
        self._ready = ready

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """Return the handlers by type of message."""
        return {"client-ready": self._client_ready}

    def _client_ready(self, received: Message) -> None:
        if self._options.metrics:
            # Real bots send them when the pipeline starts. Here the first message decides in which encoding.
            zero = [{"processor": "EmbeddedBot#0", "value": 0.0}]
            self._messenger.emit("metrics", {"ttfb": zero, "processing": zero})
        if not self._ready:
            return
        bot_version, has_services = self._messenger.bot_version, self._options.has_config or self._options.has_actions
        negotiation = negotiate(bot_version, (received.get("data") or {}).get("version"), has_services=has_services)
        self._messenger.generation = negotiation.generation
        if negotiation.warning:
            self._messenger.send_error_response(received, f"{negotiation.warning} Compatibility issues may occur.")
        if not self._configure():
            return
        ready: dict[str, Any] = {"version": negotiation.version}
        if bot_version.number >= _ABOUT_SINCE:
            ready["about"] = {"library": "rtvi_sync.testing", "library_version": __version__}
        if bot_version.number >= _CAPABILITIES_SINCE:
            ready["capabilities"] = {
                "audio_in": True,
                "audio_out": True,
                "video_in": False,
                "screen_in": False,
                "video_out": False,
                "metrics": self._options.metrics,
            }
        if negotiation.includes_config:
            ready["config"] = self._config.services
        self._messenger.emit("bot-ready", ready, received["id"])
        self._reply_player.greet()

    def _configure(self) -> bool:
        """Set the config of the connect request. A real bot that fails at it never becomes ready, and sends nothing."""
        try:
            if self._requested is not None:
                self._config.update(read_config(self._requested))
        except Exception:
            logger.warning("No bot-ready is sent: the config of the connect request cannot be set", exc_info=True)
            return False
        self._requested = None
        return True
