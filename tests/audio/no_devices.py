"""Uses all functions for devices on a machine that has none, and prints the reports it got."""

from __future__ import annotations

import json
import logging
import sys

from rtvi_sync import DeviceError, RTVIClient, WebSocketTransport
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD


class Keep(logging.Handler):
    """Keeps the levels of log records, which would go to standard error otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.levels.append(record.levelname)


logged = Keep()
logging.getLogger("rtvi_sync").addHandler(logged)
errors: list[tuple[str, ...]] = []
with EmbeddedBot() as bot:
    client = RTVIClient(
        {"transport": WebSocketTransport(bot.ws_url), "connect_timeout": GUARD, "audio_backend": sys.argv[1]}
    )
    client.on("device_error", lambda error: errors.append((*error.devices, error.type)))
    told: dict[str, object] = {"mics": len(client.get_all_mics()), "speakers": len(client.get_all_speakers())}
    with client:
        told["ping"] = client.send_client_request("ping", 1)
        try:
            client.update_speaker("ALSA/nothing")
        except DeviceError as error:
            told["refused"] = error.type
        told["state"] = client.media_state.mic.state
json.dump({**told, "errors": sorted(errors), "logged": logged.levels}, sys.stdout)
