"""Bots of Pipecat behind a telephone number hang up, and the request reaches the stub by its hook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rtvi_sync.protocol.telephony import CallWriter, PhoneCall, ProviderName
from rtvi_sync.testing import ProviderAPI
from tests.support.slowness import GUARD

from .conftest import BotServer

pytestmark = pytest.mark.inside

# Any text will do; without one the serializers refuse to be made.
CREDENTIALS = {
    "TWILIO_ACCOUNT_SID": "AC1",
    "TWILIO_AUTH_TOKEN": "none",
    "TELNYX_API_KEY": "none",
    "PLIVO_AUTH_ID": "MA1",
    "PLIVO_AUTH_TOKEN": "none",
}
ACCOUNTS: dict[ProviderName, str | None] = {"twilio": "AC1", "telnyx": None, "plivo": "MA1"}


def test_the_bot_hangs_up(
    pipecat_process: Callable[..., BotServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of its pipeline the bot asks each provider to end the call, and then closes with 1000."""
    with ProviderAPI() as api:
        (tmp_path / "sitecustomize.py").write_text(api.hook)
        for name, value in {**CREDENTIALS, "PYTHONPATH": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        bot = pipecat_process("stock", "--entries", ",".join(ACCOUNTS))
        for provider, account in ACCOUNTS.items():
            writer = CallWriter(PhoneCall(provider=provider, call_id=f"{provider}-1", stream_id="MZ1"), 0.0)
            with connect(bot.ws_url, proxy=None, compression=None) as connection:
                for text in (*writer.opening(), writer.audio(b"\xff" * 160, 0.02)):  # silence, which Plivo's bot needs
                    connection.send(text.decode())
                assert bot.live_sessions(expected=1) == 1
                bot.control("end")
                hang_up = api.wait_for_hang_up(GUARD)
                with pytest.raises(ConnectionClosed) as closed:
                    _receive_all(connection)
            assert (hang_up.provider, hang_up.call_id, hang_up.account) == (provider, f"{provider}-1", account)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1000
        assert len(api.hang_ups) == len(ACCOUNTS)
        assert bot.log.read_text().count("Successfully terminated") == len(ACCOUNTS)  # by the answers


def _receive_all(connection: ClientConnection) -> None:
    while True:
        connection.recv(GUARD)
