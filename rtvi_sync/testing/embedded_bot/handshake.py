"""How the bot answers `client-ready`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from rtvi_sync._version import __version__
from rtvi_sync.testing.embedded_bot.bot_version import negotiate
from rtvi_sync.testing.embedded_bot.config import LiveConfig, read_config
from rtvi_sync.testing.embedded_bot.messenger import MessageHandler, Messenger
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.script import Message

logger: logging.Logger = logging.getLogger(__name__)

# The protocol versions from which on bots of Pipecat tell these in `bot-ready`.
_TELLS_ABOUT: Final = (1, 1)
_TELLS_CAPABILITIES: Final = (2, 2)


class Handshake:
    """Meets one client, on the thread of the session.

    Args:
        line: takes the answer, and learns which generation the client is of.
        config: of the session.
        wished: what the connect request wanted set in it, anything; None if it wanted nothing.
        options: of the bot.
    """

    def __init__(self, messenger: Messenger, config: LiveConfig, wished: Any, options: BotOptions) -> None:
        self._messenger = messenger
        self._config = config
        self._wished = wished
        self._options = options

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """By type of message."""
        return {"client-ready": self._client_ready}

    def _client_ready(self, received: Message) -> None:
        if not self._options.ready:
            return
        bot_version, has_services = self._messenger.bot_version, self._options.has_config or self._options.has_actions
        negotiation = negotiate(bot_version, (received.get("data") or {}).get("version"), has_services=has_services)
        self._messenger.generation = negotiation.generation
        if negotiation.warning:
            self._messenger.send_error_response(received, f"{negotiation.warning} Compatibility issues may occur.")
        if not self._configure():
            return
        ready: dict[str, Any] = {"version": negotiation.version}
        if bot_version.number >= _TELLS_ABOUT:
            ready["about"] = {"library": "rtvi_sync.testing", "library_version": __version__}
        if bot_version.number >= _TELLS_CAPABILITIES:
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

    def _configure(self) -> bool:
        """Set what the connect request wished. A real bot that fails at it never gets ready, and says nothing."""
        try:
            if self._wished is not None:
                self._config.update(read_config(self._wished))
        except Exception:
            logger.warning("no bot-ready: the config of the connect request cannot be set", exc_info=True)
            return False
        self._wished = None
        return True
