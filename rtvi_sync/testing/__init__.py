"""Tools for testing code that talks to voice bots."""

from rtvi_sync.testing import faults
from rtvi_sync.testing.bot import EmbeddedBot
from rtvi_sync.testing.fault_connection import Injection, ProxyConnection
from rtvi_sync.testing.fault_proxy import FaultProxy
from rtvi_sync.testing.http_endpoint import BotRequest
from rtvi_sync.testing.session import BotSession

__all__ = ["BotRequest", "BotSession", "EmbeddedBot", "FaultProxy", "Injection", "ProxyConnection", "faults"]
