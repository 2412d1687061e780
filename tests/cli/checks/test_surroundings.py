"""The delays of the network, and this machine."""

from __future__ import annotations

import platform
from collections.abc import Callable

from tests.support.doctor import Examined, a_bot, nothing


def test_a_session(doctor: Callable[..., Examined]) -> None:
    """The round trip, the evenness of audio and the largest message are told in numbers."""
    with a_bot() as url:
        checks = doctor(url).checks
    assert checks["ping"]["finding"].startswith("a round trip takes ")
    assert checks["timing"]["finding"].startswith("95 % of the audio arrived within ")
    assert checks["limits"]["finding"] == "messages of up to 1,048,576 bytes are sent"


def test_this_machine(doctor: Callable[..., Examined]) -> None:
    """The doctor reports the machine's equipment without a bot, too."""
    with nothing() as url:
        check = doctor(url).checks["local"]
    assert check["status"] == "ok"
    assert f"Python {platform.python_version()}, rtvi_sync " in check["finding"]
