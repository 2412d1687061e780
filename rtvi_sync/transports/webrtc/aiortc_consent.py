"""The watch whether the bot still wants to be sent to (RFC 7675), with more patience than aioice has.

aioice gives an answer 0.5 s and ends the connection after six that did not come in time. On a busy machine an answer
takes longer, because it waits behind the audio of the same socket: asyncio takes one packet of each in a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Any, Final

from aioice import stun
from aiortc import RTCRtpSender

#: A bot that has answered nothing for this long wants nothing any more, in seconds: as RFC 7675 has it.
LIMIT: Final = 30.0
# Seconds between an answer and the next request, on average.
_INTERVAL = 5.0
# By these, each after twice the time of the one before, a request waits 15.5 s for its answer.
_RETRANSMISSIONS = 4
# What is used of aioice's connection.
_PARTS = ("query_consent", "_query_consent_task", "_nominated", "build_request", "remote_password", "close")


def be_patient(sender: RTCRtpSender) -> bool:
    """Have the connection of `sender` wait longer; return whether this version of aiortc and aioice allows it.

    Called before the connection opens.
    """
    ice: Any = getattr(sender.transport.transport, "_connection", None)
    if not all(hasattr(ice, name) for name in _PARTS):
        return False

    async def query_consent() -> None:
        answered = time.monotonic()
        while time.monotonic() - answered < LIMIT:
            await asyncio.sleep(_INTERVAL * random.uniform(0.8, 1.2))  # noqa: S311 - no secret
            for pair in [*ice._nominated.values()]:
                with contextlib.suppress(stun.TransactionError):
                    await pair.protocol.request(
                        ice.build_request(pair, nominate=False),
                        pair.remote_addr,
                        integrity_key=ice.remote_password.encode(),
                        retransmissions=_RETRANSMISSIONS,
                    )
                    answered = time.monotonic()
        ice._query_consent_task = None  # it is this one, for which the end would wait
        await ice.close()

    ice.query_consent = query_consent
    return True
