"""The choice among several TURN servers: aiortc uses the first one, and does not check that it can be reached."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import attrs
from aioice import stun, turn

from ...concurrency.loop_thread import Scope
from .peer import ICEServer

_TURN_URL = re.compile(r"(?P<scheme>turns?):(?P<host>[^?:]+)(:(?P<port>\d+))?(\?transport=(?P<transport>\w+))?")
# Seconds that a server has to answer before a later server in the list, which has answered, takes its place.
_HEAD_START = 1.0
# Seconds for the first answer after that.
_PATIENCE = 2.0


async def reachable_first(servers: Sequence[ICEServer]) -> list[ICEServer]:
    """Return the servers with one TURN URL: the first that answers, or none if none does.

    A single URL is not checked: aiortc does that.
    """
    found = [(server, url) for server in servers for url in server.urls if url.startswith("turn")]
    if len(found) < 2:
        return [*servers]
    chosen = [ICEServer(urls=(url,)) for server in servers for url in server.urls if not url.startswith("turn")]
    number = await _first_that_answers([url for _, url in found])
    if number is not None:
        server, url = found[number]
        chosen.append(attrs.evolve(server, urls=(url,)))
    return chosen


async def _first_that_answers(urls: Sequence[str]) -> int | None:
    """Ask all servers at once; return the index of the first that answers, None if none does."""
    questions = Scope()
    asked = [asyncio.create_task(_answers(url, questions)) for url in urls]
    head_start = asyncio.create_task(asyncio.sleep(_HEAD_START))
    waiting: set[asyncio.Task[object]] = {*asked, head_start}
    try:
        while not all(task.done() for task in asked):
            done, waiting = await asyncio.wait(waiting, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            for number, task in enumerate(asked):
                if task.done() and task.result():
                    return number
                if not (task.done() or head_start.done()):
                    break
            if not done:
                break
    finally:
        head_start.cancel()
        await questions.close(_PATIENCE)
    return None


async def _answers(url: str, questions: Scope) -> bool:
    """Ask for an address without a password; return whether the server answers at all."""
    questions.enter()
    match = _TURN_URL.fullmatch(url)
    if match is None:
        return False
    is_secure = match["scheme"] == "turns"
    address = match["host"], int(match["port"] or (5349 if is_secure else 3478))
    transport = match["transport"] or ("tcp" if is_secure else "udp")
    try:
        given, _ = await turn.create_turn_endpoint(
            asyncio.DatagramProtocol, address, None, None, ssl=is_secure or None, transport=transport
        )
    except stun.TransactionFailed:  # it asks for a password
        return True
    except Exception:  # noqa: BLE001 - any failure means no answer
        return False
    given.close()
    return True
