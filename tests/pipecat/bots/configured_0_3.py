"""Pipecat 0.0.73 (RTVI 0.3) behind FastAPI: a bot with a configuration and actions, also single ones over HTTP.

Its action `bot:show` shows things that no conversation causes. With `--echo` it does not talk, but sends the user's
audio back.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import scenes
from configuring import Configuration, add_configured_bot
from fastapi import HTTPException, WebSocket
from fastapi.responses import StreamingResponse
from functions import register_functions
from pipecat.frames.frames import EndFrame, Frame, TransportMessageUrgentFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.openai_llm_context import OpenAILLMContext, OpenAILLMContextFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.processors.frameworks.rtvi import (
    RTVIAction,
    RTVIActionFrame,
    RTVIActionRun,
    RTVIAudioMessageData,
    RTVIBotTTSAudioMessage,
    RTVIObserver,
    RTVIProcessor,
)
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.openai.llm import OpenAIAssistantContextAggregator, OpenAIUserContextAggregator
from pipecat.transports.network.fastapi_websocket import FastAPIWebsocketParams, FastAPIWebsocketTransport
from scenes import Scenes
from serving import Host
from session import PipelineSession
from sounds import Echo, LevelVAD
from standins_0_3 import RepeatingLLM, ScriptedSTT, ToneTTS

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--echo", action="store_true", help="send the user's audio back, 16 kHz both ways")
is_echo = parser.parse_args().echo
host = Host()


def by_hand(type: str, data: Any) -> list[Frame]:
    """Return a message that Pipecat has no class for: applications of that time sent it so."""
    return [TransportMessageUrgentFrame(message={"label": "rtvi-ai", "type": type, "data": data})]


def speech() -> list[Frame]:
    message = RTVIBotTTSAudioMessage(data=RTVIAudioMessageData(audio="AAAA", sample_rate=16000, num_channels=1))
    return [TransportMessageUrgentFrame(message=message.model_dump())]


SCENES: Scenes = {
    **scenes.SCENES,
    "speech": speech,
    "storage": lambda: by_hand("storage-item-stored", {"action": "append", "items": [1]}),
    "completion": lambda: by_hand("llm-json-completion", '{"key": "value"}'),
}


async def bot(websocket: WebSocket, config: list[Any] | None) -> None:
    transport = FastAPIWebsocketTransport(
        websocket,
        FastAPIWebsocketParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            serializer=ProtobufFrameSerializer(),
            # Speech would interrupt its own echo.
            vad_analyzer=None if is_echo else LevelVAD(),
        ),
    )
    context, llm = OpenAILLMContext(), RepeatingLLM()

    async def show(scene: str) -> None:
        if scene == "function-call-start":
            # Pipecat's own, deprecated even then
            await rtvi.handle_function_call_start("old_client_tool", llm, context)
            return
        for frame in SCENES[scene]():
            # A message from before the processor would be one of the client's.
            to_client = isinstance(frame, TransportMessageUrgentFrame)
            await (rtvi.push_frame(frame) if to_client else task.queue_frame(frame))

    rtvi = Configuration(config, context, OpenAILLMContextFrame, show).rtvi
    register_functions(llm, rtvi)

    @rtvi.event_handler("on_client_ready")
    async def on_client_ready(rtvi: RTVIProcessor) -> None:
        await rtvi.set_bot_ready()

    talker = [ScriptedSTT(), OpenAIUserContextAggregator(context), llm, ToneTTS()]
    processors = [
        transport.input(),
        rtvi,
        *([Echo()] if is_echo else talker),
        transport.output(),
        OpenAIAssistantContextAggregator(context),
    ]
    task = PipelineTask(
        Pipeline(processors),
        params=PipelineParams(
            # The echo has the rate of the user's audio: nothing is resampled.
            audio_out_sample_rate=16000 if is_echo else 24000,
            allow_interruptions=True,
            enable_metrics=True,
            enable_usage_metrics=True,
        ),
        observers=[RTVIObserver(rtvi)],
        idle_timeout_secs=None,
    )
    gone = asyncio.Event()
    cancellations = []

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        # Not awaited here: a pipeline that ends by itself waits for this handler.
        cancellations.append(asyncio.create_task(task.cancel()))
        gone.set()

    with host.sessions.live(PipelineSession(task, transport)):
        running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
        leaving = asyncio.create_task(gone.wait())
        await asyncio.wait([running, leaving], return_when=asyncio.FIRST_COMPLETED)
        # When a client leaves as the bot starts to speak, the pipeline of this version never ends.
        await asyncio.wait([running], timeout=0.5)
        leaving.cancel()


class Outlet(FrameProcessor):
    """The end of a pipeline without a transport: keeps the messages to the client."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: asyncio.Queue[Any] = asyncio.Queue()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TransportMessageUrgentFrame):
            self.messages.put_nowait(frame.message)
        await self.push_frame(frame, direction)


async def http_action(actions: list[Any]) -> AsyncIterator[Any]:
    """Run actions in a pipeline of their own, as the public bots of that time did; yield the bot's messages."""
    context, llm, outlet = OpenAILLMContext(), RepeatingLLM(), Outlet()

    async def show(scene: str) -> None:
        await rtvi.push_frame(scenes.SCENES[scene]()[0])

    rtvi = Configuration([], context, OpenAILLMContextFrame, show).rtvi

    async def end(_rtvi: RTVIProcessor, _service: str, _arguments: dict[str, Any]) -> bool:
        await task.queue_frame(EndFrame())
        return True

    rtvi.register_action(RTVIAction(service="system", action="end", result="bool", handler=end))
    task = PipelineTask(Pipeline([rtvi, llm, outlet]), observers=[RTVIObserver(rtvi)], idle_timeout_secs=None)
    running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
    running.add_done_callback(lambda _: outlet.messages.put_nowait(None))
    for action in actions:
        wanted = RTVIActionRun.model_validate(action["data"])
        await task.queue_frame(RTVIActionFrame(message_id=action["id"], rtvi_action_run=wanted))
    # The bots' own way to end. Its answer goes to the client like any other.
    the_end = RTVIActionRun(service="system", action="end")
    await task.queue_frame(RTVIActionFrame(message_id="END", rtvi_action_run=the_end))
    try:
        while (message := await outlet.messages.get()) is not None:
            yield message
    finally:
        # Nothing to do unless the client has left.
        running.cancel()


def refuse_if_told_to(body: dict[str, Any]) -> None:
    if "fail" in body:
        raise HTTPException(body["fail"], body["detail"])


@host.app.post("/action")
async def action(body: dict[str, Any]) -> StreamingResponse:
    """Answer single-turn actions; the answer is an event stream of base64."""
    refuse_if_told_to(body)

    async def events() -> AsyncIterator[bytes]:
        async for message in http_action(body["actions"]):
            yield b"data: " + base64.b64encode(json.dumps(message).encode()) + b"\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@host.app.post("/action-json")
async def action_json(body: dict[str, Any]) -> Any:
    """Answer one action; the answer is one JSON document, the response."""
    refuse_if_told_to(body)
    wanted = body["actions"][0]["id"]
    [response] = [message async for message in http_action(body["actions"]) if message.get("id") == wanted]
    return response


if __name__ == "__main__":
    add_configured_bot(host, bot)
    host.run()
