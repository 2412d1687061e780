"""The common parts of scripted bots of every version of Pipecat: their server, and how they act."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any

from pipecat.frames.frames import ErrorFrame, Frame, FunctionCallFromLLM, LLMTextFrame, TTSSpeakFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from script import Script, tokens
from serving import Host

TOKEN_SECONDS = 0.01
_calls = itertools.count(1)


class ScriptedHost(Host):
    """A server that is posted the script of its next session, and texts that the last session's bot says unasked.

    Attributes:
        script: of the next session.
        task: of the last session.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script = Script()
        self.task: Any = None

        @self.app.post("/script")
        async def give(script: dict[str, Any]) -> None:
            self.script = Script(**script)

        @self.app.post("/say")
        async def say(what: dict[str, str]) -> None:
            await self.task.queue_frame(TTSSpeakFrame(what["text"]))


class Acting:
    """The part of a language model that follows the script, in front of a `RepeatingLLM`."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def answer(self, context: Any) -> None:
        await act(self.script.reply(context.get_messages()), self, context)

    async def write(self, token: str) -> None:
        await self.push_frame(LLMTextFrame(token))  # type: ignore[attr-defined]


class Failing:
    """The part of a voice that fails first, in front of one that speaks.

    Args:
        failures: how many sentences it fails to speak.
    """

    def __init__(self, failures: int) -> None:
        super().__init__()
        self._failures = failures

    async def run_tts(self, text: str, *more: Any) -> AsyncGenerator[Frame | None, None]:
        if self._failures:
            self._failures -= 1
            yield ErrorFrame("the voice is gone")
            return
        async for frame in super().run_tts(text, *more):  # type: ignore[misc]
            yield frame


class Reader(FrameProcessor):
    """Has the answers of a script read out, with no language model.

    Args:
        script: has them.
        question: the frame that runs a language model.
    """

    def __init__(self, script: Script, question: type[Frame]) -> None:
        super().__init__()
        self._script = script
        self._question = question

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, self._question):
            for _, text in self._script.reply(frame.context.get_messages()):
                await self.push_frame(TTSSpeakFrame(text))
        else:
            await self.push_frame(frame, direction)


async def act(steps: list[Any], llm: Any, context: Any) -> None:
    """Follow a script, as the language model."""
    for kind, value, *more in steps:
        match kind:
            case "write":
                for token in tokens(value):
                    await asyncio.sleep(TOKEN_SECONDS)
                    await llm.write(token)
            case "call":
                calls = [FunctionCallFromLLM(name, f"{name}-{next(_calls)}", given, context) for name, given in value]
                await llm.run_function_calls(calls)
            case "fail":
                await llm.push_frame(ErrorFrame(value, fatal=bool(more and more[0])), FrameDirection.UPSTREAM)
            case "pause":
                await asyncio.sleep(value)
            case "speak":
                await llm.push_frame(TTSSpeakFrame(value))


async def greet(script: Script, task: Any, context: Any, run: Frame) -> None:
    """Greet as a script says; `run` runs the language model."""
    for kind, text in script.greets:
        if kind == "speak":
            await task.queue_frame(TTSSpeakFrame(text))
        else:
            context.add_message({"role": "system", "content": text})
            await task.queue_frame(run)


def register(script: Script, llm: Any, rtvi: Any) -> None:
    """Register the functions of a script, and its filler."""
    for name, function in script.functions.items():
        is_remote = function.get("on") == "client"
        options = {"timeout_secs": function["timeout"]} if "timeout" in function else {}  # 0.0.73 has none
        llm.register_function(name, rtvi.handle_function_call if is_remote else _function(function), **options)
    if script.filler:

        @llm.event_handler("on_function_calls_started")
        async def on_function_calls_started(*_: object) -> None:
            await llm.push_frame(TTSSpeakFrame(script.filler))


def _function(function: dict[str, Any]) -> Any:
    async def run(params: Any) -> None:
        await asyncio.sleep(function.get("seconds", 0.0))
        await params.result_callback(function.get("result", {}))

    return run
