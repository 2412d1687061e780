"""Functions that the language models can call, for every version of Pipecat."""

from __future__ import annotations

import asyncio
from typing import Any

REPORTED = ["disabled", "none", "name", "arguments", "full"]
"""Functions that return their arguments. Their names are the levels at which newer versions report calls."""


def register_functions(llm: Any, rtvi: Any) -> None:
    """Register `REPORTED`, and: slow, which never ends; client_tool and old_client_tool, which the client runs."""
    for name in REPORTED:
        llm.register_function(name, _echo)
    llm.register_function("slow", _never_end)
    llm.register_function("client_tool", _leave_to_client)
    llm.register_function("old_client_tool", rtvi.handle_function_call)


async def _echo(params: Any) -> None:
    await params.result_callback({"echo": dict(params.arguments)})


async def _never_end(_: Any) -> None:
    await asyncio.Event().wait()


async def _leave_to_client(_: Any) -> None:
    """Leave the call to the client, which knows of it by its report and sends the result."""
