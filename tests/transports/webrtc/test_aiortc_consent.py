"""The patience with a bot that is slow to answer ICE, between two ends in this process."""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aioice
import aiortc
import pytest

from rtvi_sync.transports.webrtc import aiortc_consent as module
from rtvi_sync.transports.webrtc.aiortc_consent import be_patient
from tests.support import limits, part_probes
from tests.support.slowness import GUARD, takes
from tests.support.webrtc import FarLoop

pytestmark = pytest.mark.inside

# aioice by itself ends a connection after six requests without an answer in time.
MANY = 8


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the clock, and make the times of aioice and the package short."""
    clock = types.SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "monotonic", lambda: clock.now)
    limits.patch(monkeypatch, consent_interval=0.005)
    monkeypatch.setattr(aioice.ice, "CONSENT_INTERVAL", 0.005)
    monkeypatch.setattr(aioice.stun, "RETRY_RTO", 0.005)
    return clock


def sender_of(ice: Any) -> Any:
    """Return an object that holds a connection as aiortc's senders do."""
    return types.SimpleNamespace(transport=types.SimpleNamespace(transport=types.SimpleNamespace(_connection=ice)))


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[aioice.Connection, aioice.Connection]]:
    """Yield two ends that are connected; the first one is patient."""
    near, far = aioice.Connection(ice_controlling=True), aioice.Connection(ice_controlling=False)
    assert be_patient(sender_of(near), lambda: None)
    for end, other in ((near, far), (far, near)):
        await end.gather_candidates()
        other.remote_username, other.remote_password = end.local_username, end.local_password
    for end, other in ((near, far), (far, near)):
        for candidate in [*end.local_candidates, None]:
            await other.add_remote_candidate(candidate)
    await asyncio.gather(near.connect(), far.connect())
    vars(far)["_query_consent_task"].cancel()
    yield near, far
    await asyncio.gather(near.close(), far.close())


def watch(far: aioice.Connection, clock: Any, answer: Callable[..., object]) -> set[bytes]:
    """Return the requests that `far` receives from now on, each 7 s after the one before; `answer` answers them."""
    ice: Any = far
    take, asked = ice.request_received, set[bytes]()

    def take_later(message: Any, *args: Any) -> None:
        clock.now += 0.0 if message.transaction_id in asked else 7.0
        asked.add(message.transaction_id)
        answer(take, message, *args)

    ice.request_received = take_later
    return asked


def test_late_answers(far_loop: FarLoop, clock: Any) -> None:
    """Late answers count, so that the connection of a busy machine stays open."""

    async def connect() -> None:
        async with connected() as (near, far):
            asked = watch(far, clock, lambda *call: asyncio.get_running_loop().call_later(0.02, *call))
            while len(asked) <= MANY and near._nominated:
                await asyncio.sleep(0.001)
            assert near._nominated

    far_loop.run(connect())


def test_no_answer(far_loop: FarLoop, clock: Any) -> None:
    """After 30 s the connection ends, as RFC 7675 has it."""

    async def connect() -> None:
        async with connected() as (near, far):
            asked = watch(far, clock, lambda *_: None)
            assert isinstance(await asyncio.wait_for(near.get_event(), GUARD), aioice.ConnectionClosed)
            assert len(asked) == 5

    far_loop.run(connect())


def test_a_request_outlives_no_limit(far_loop: FarLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends at the limit, though the last request would wait for its answer for minutes."""
    monkeypatch.setattr(module, "monotonic", time.monotonic)
    limits.patch(monkeypatch, consent=0.2)
    monkeypatch.setattr(aioice.stun, "RETRY_RTO", 10.0)

    async def connect() -> None:
        async with connected() as (near, far):
            watch(far, types.SimpleNamespace(now=0.0), lambda *_: None)
            with takes(0.5):
                assert isinstance(await near.get_event(), aioice.ConnectionClosed)

    far_loop.run(connect())


def test_aiortc_has_what_is_used(caplog: pytest.LogCaptureFixture) -> None:
    """The private parts exist in this version; without them, its own way is left as it is, and a warning says so."""

    async def look() -> tuple[bool, bool]:
        sender = aiortc.RTCPeerConnection().addTransceiver("audio").sender
        return be_patient(sender, print), be_patient(sender_of(object()), print)

    part_probes.warn_again()
    assert asyncio.run(look()) == (True, False)
    assert "Install another version of aiortc and aioice" in caplog.text
