"""Tools for testing code that talks to voice bots."""

from rtvi_sync.testing import faults
from rtvi_sync.testing.answers import Answer
from rtvi_sync.testing.bot import EmbeddedBot
from rtvi_sync.testing.fault_connection import Injection, ProxyConnection
from rtvi_sync.testing.fault_proxy import FaultProxy
from rtvi_sync.testing.http_endpoint import BotRequest
from rtvi_sync.testing.many import run_many
from rtvi_sync.testing.measured import MeasuredClient, Measurement
from rtvi_sync.testing.report import Percentiles, Report, Row
from rtvi_sync.testing.session import BotSession

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
