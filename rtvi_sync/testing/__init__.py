"""Tools for testing applications that talk to voice bots."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from rtvi_sync.conversation.words import word_error_rate
    from rtvi_sync.testing import faults, scenarios
    from rtvi_sync.testing.embedded_bot.bot import EmbeddedBot
    from rtvi_sync.testing.embedded_bot.phone import BotCall
    from rtvi_sync.testing.embedded_bot.reply import Fault, Reply
    from rtvi_sync.testing.embedded_bot.server import BotRequest
    from rtvi_sync.testing.embedded_bot.session import BotSession
    from rtvi_sync.testing.fault_injection.fault_connection import Injection, ProxyConnection
    from rtvi_sync.testing.fault_injection.fault_proxy import FaultProxy
    from rtvi_sync.testing.load.many import run_many
    from rtvi_sync.testing.load.measured import MeasuredClient, Measurement
    from rtvi_sync.testing.load.report import LostSeconds, Percentiles, Report, Row, RowAudio
    from rtvi_sync.testing.provider_api import HangUp, ProviderAPI
    from rtvi_sync.testing.replay_bot import Mismatch, ReplayBot
    from rtvi_sync.testing.simulation import Talk, simulate

__all__ = [
    "BotCall",
    "BotRequest",
    "BotSession",
    "EmbeddedBot",
    "Fault",
    "FaultProxy",
    "HangUp",
    "Injection",
    "LostSeconds",
    "MeasuredClient",
    "Measurement",
    "Mismatch",
    "Percentiles",
    "ProviderAPI",
    "ProxyConnection",
    "ReplayBot",
    "Reply",
    "Report",
    "Row",
    "RowAudio",
    "Talk",
    "faults",
    "run_many",
    "scenarios",
    "simulate",
    "word_error_rate",
]

# Each name is imported on first use, because every run of pytest imports this package with the plugin.
_NAMES = {
    ".conversation.words": "word_error_rate",
    "embedded_bot.bot": "EmbeddedBot",
    "embedded_bot.phone": "BotCall",
    "embedded_bot.reply": "Fault Reply",
    "embedded_bot.server": "BotRequest",
    "embedded_bot.session": "BotSession",
    "fault_injection.fault_connection": "Injection ProxyConnection",
    "fault_injection.fault_proxy": "FaultProxy",
    "load.many": "run_many",
    "load.measured": "MeasuredClient Measurement",
    "load.report": "LostSeconds Percentiles Report Row RowAudio",
    "provider_api": "HangUp ProviderAPI",
    "replay_bot": "Mismatch ReplayBot",
    "simulation": "Talk simulate",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

if not typing.TYPE_CHECKING:  # hidden, because a type checker would accept any name

    def __getattr__(name: str) -> typing.Any:
        if name in ("faults", "scenarios"):
            return importlib.import_module(f".{name}", __name__)
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, getattr(importlib.import_module(f".{module}", __name__), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
