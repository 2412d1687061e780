"""Tools for testing applications that talk to voice bots."""

from rtvi_sync.testing import faults
from rtvi_sync.testing.embedded_bot.bot import EmbeddedBot
from rtvi_sync.testing.embedded_bot.http_endpoint import BotRequest
from rtvi_sync.testing.embedded_bot.session import BotSession
from rtvi_sync.testing.fault_injection.fault_connection import Injection, ProxyConnection
from rtvi_sync.testing.fault_injection.fault_proxy import FaultProxy
from rtvi_sync.testing.load.answers import Answer
from rtvi_sync.testing.load.many import run_many
from rtvi_sync.testing.load.measured import MeasuredClient, Measurement
from rtvi_sync.testing.load.report import Percentiles, Report, Row

__all__ = [
    "Answer",
    "BotRequest",
    "BotSession",
    "EmbeddedBot",
    "FaultProxy",
    "Injection",
    "MeasuredClient",
    "Measurement",
    "Percentiles",
    "ProxyConnection",
    "Report",
    "Row",
    "faults",
    "run_many",
]
