"""The bots' answers to client messages. It imports no Pipecat: all versions that know client messages use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def answer(rtvi: Any, message: Any) -> None:
    """Answer a client message by its type: ping, slow (`d`: seconds), fail, twice, never."""
    match message.type:
        case "ping":
            await rtvi.send_server_response(message, {"pong": message.data})
        case "slow":
            await asyncio.sleep(message.data)
            await rtvi.send_server_response(message, {"slept": message.data})
        case "twice":
            await rtvi.send_server_response(message, {"answer": 1})
            await rtvi.send_server_response(message, {"answer": 2})
        case "fail":
            await rtvi.send_error_response(message, "no way")
        case "never":
            pass
        case _:
            await rtvi.send_error_response(message, f"no answer to {message.type!r}")


class ShowAndTell:
    """Answers `show` (`d`: a scene), `context`, `journal`, and the messages of `answer`.

    Args:
        show: shows a scene.
        context: the context of the language model.
        journal: Pipecat's reports of the client's messages.
    """

    def __init__(self, show: Callable[[str], Awaitable[None]], context: Any, journal: list[Any]) -> None:
        self._show = show
        self._context = context
        self._journal = journal

    async def answer(self, rtvi: Any, message: Any) -> None:
        match message.type:
            case "show":
                await self._show(message.data)
                await rtvi.send_server_response(message, None)
            case "context":
                await rtvi.send_server_response(message, self._context.get_messages())
            case "journal":
                await rtvi.send_server_response(message, self._journal)
            case _:
                await answer(rtvi, message)
