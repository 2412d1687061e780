"""How scripted bots act, in every version of Pipecat."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from pipecat.frames.frames import ErrorFrame, FunctionCallFromLLM, LLMTextFrame, TTSSpeakFrame
from pipecat.processors.frame_processor import FrameDirection
from script import Script, tokens

TOKEN_SECONDS = 0.01
_calls = itertools.count(1)


async def act(steps: list[Any], llm: Any, context: Any) -> None:
    """Do what a script says, as the language model."""
    for kind, value, *more in steps:
        match kind:
            case "write":
                for token in tokens(value):
                    await asyncio.sleep(TOKEN_SECONDS)
                    await llm.push_frame(LLMTextFrame(token))
            case "call":
                calls = [FunctionCallFromLLM(name, f"{name}-{next(_calls)}", given, context) for name, given in value]
                await llm.run_function_calls(calls)
            case "fail":
                await llm.push_frame(ErrorFrame(value, fatal=bool(more and more[0])), FrameDirection.UPSTREAM)
            case "pause":
                await asyncio.sleep(value)
            case "speak":
                await llm.push_frame(TTSSpeakFrame(value))


def register(script: Script, llm: Any, rtvi: Any) -> None:
    """Register the functions of a script, and its filler."""
    for name, function in script.functions.items():
        is_remote = function.get("on") == "client"
        llm.register_function(name, rtvi.handle_function_call if is_remote else _function(function))
    if script.filler:

        @llm.event_handler("on_function_calls_started")
        async def on_function_calls_started(*_: object) -> None:
            await llm.push_frame(TTSSpeakFrame(script.filler))


def _function(function: dict[str, Any]) -> Any:
    async def run(params: Any) -> None:
        await asyncio.sleep(function.get("seconds", 0.0))
        await params.result_callback(function.get("result", {}))

    return run
