"""Tools for testing code that talks to voice bots."""

from rtvi_sync.testing.bot import EmbeddedBot
from rtvi_sync.testing.session import BotSession

__all__ = ["BotSession", "EmbeddedBot"]
