"""The check that the bot still consents to receive (RFC 7675), with more patience than aioice's own.

aioice waits 0.5 s for an answer, and ends the connection after six late answers. On a busy machine an answer takes
longer, because it waits behind the audio of the same socket: asyncio takes one packet of each in a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Callable
from typing import Any, Final

from aioice import stun
from aiortc import RTCRtpSender

from ...concurrency.clock import monotonic
from ...concurrency.logs import package_logger

logger: logging.Logger = package_logger(__name__)

#: A bot that has answered nothing for this many seconds no longer consents, as in RFC 7675.
LIMIT: Final = 30.0
# Seconds between an answer and the next request, on average.
_INTERVAL = 5.0
# With this many, each after twice the time of the one before, a request waits 15.5 s for its answer.
_RETRANSMISSIONS = 4
# The members of aioice's connection that this module uses.
_PARTS = ("query_consent", "_query_consent_task", "_nominated", "build_request", "remote_password", "close")


@functools.cache
def _warn_of_aioice() -> None:
    """Warn, once in this process, that sessions may end without need."""
    logger.warning(
        "aioice ends a connection that is in order if this machine or the bot's is busy for half a minute. Install "
        "another version of aiortc and aioice"
    )


def be_patient(sender: RTCRtpSender, on_lost: Callable[[], None]) -> bool:
    """Make the connection of `sender` wait longer; return whether this version of aiortc and aioice allows it.

    Call it before the connection opens.

    Args:
        sender: the sender of any track.
        on_lost: called on the loop if the bot has not answered, before the connection is closed.
    """
    ice: Any = getattr(sender.transport.transport, "_connection", None)
    if not all(hasattr(ice, name) for name in _PARTS):
        _warn_of_aioice()
        return False

    async def query_consent() -> None:
        answered = monotonic()
        while (left := answered + LIMIT - monotonic()) > 0:
            await asyncio.sleep(min(left, _INTERVAL * random.uniform(0.8, 1.2)))  # noqa: S311 - no secret
            for pair in [*ice._nominated.values()]:
                request = pair.protocol.request(
                    ice.build_request(pair, nominate=False),
                    pair.remote_addr,
                    integrity_key=ice.remote_password.encode(),
                    retransmissions=_RETRANSMISSIONS,
                )
                with contextlib.suppress(stun.TransactionError, asyncio.TimeoutError):
                    await asyncio.wait_for(request, answered + LIMIT - monotonic())
                    answered = monotonic()
        on_lost()
        ice._query_consent_task = None  # it is this one, for which the end would wait
        await ice.close()

    ice.query_consent = query_consent
    return True
