"""Pipecat 0.0.73 (RTVI 0.3.0) behind FastAPI: a bot with a configuration, which sends the user's audio back."""

import asyncio
from typing import Any

from fastapi import WebSocket
from pipecat.frames.frames import EndFrame, ErrorFrame, Frame, InputAudioRawFrame, OutputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.processors.frameworks.rtvi import (
    RTVIConfig,
    RTVIObserver,
    RTVIProcessor,
    RTVIServerMessageFrame,
    RTVIService,
    RTVIServiceConfig,
    RTVIServiceOption,
    RTVIServiceOptionConfig,
)
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.network.fastapi_websocket import FastAPIWebsocketParams, FastAPIWebsocketTransport
from serving import Host

# Service -> option -> (type, initial value)
OPTIONS = {
    "tts": {"voice": ("string", "tone")},
    "llm": {"model": ("string", "scripted-llm"), "run_on_config": ("bool", False)},
}
host = Host()


class Echo(FrameProcessor):
    """Sends the user's audio back."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            frame = OutputAudioRawFrame(frame.audio, frame.sample_rate, frame.num_channels)
        await self.push_frame(frame, direction)


class TaskSession:
    """One running task, as the controls see it."""

    def __init__(self, task: PipelineTask, rtvi: RTVIProcessor, last: FrameProcessor) -> None:
        self._task = task
        self._rtvi = rtvi
        self._last = last

    async def end(self) -> None:
        await self._task.queue_frame(EndFrame())

    async def cancel(self) -> None:
        await self._task.cancel()

    async def fail(self, error: str) -> None:
        await self._last.push_error(ErrorFrame(error, fatal=True))

    async def send(self, data: Any) -> None:
        await self._rtvi.push_frame(RTVIServerMessageFrame(data))


async def accept(rtvi: RTVIProcessor, service: str, option: RTVIServiceOptionConfig) -> None:
    """Accepts any value: the processor keeps the configuration itself."""


def configured_rtvi() -> RTVIProcessor:
    """A processor with the services of `OPTIONS`: an unregistered one in the configuration would prevent bot-ready."""
    config = [
        RTVIServiceConfig(
            service=service,
            options=[RTVIServiceOptionConfig(name=name, value=value) for name, (_, value) in options.items()],
        )
        for service, options in OPTIONS.items()
    ]
    rtvi = RTVIProcessor(config=RTVIConfig(config=config))
    for service, options in OPTIONS.items():
        described = [RTVIServiceOption(name=name, type=kind, handler=accept) for name, (kind, _) in options.items()]
        rtvi.register_service(RTVIService(name=service, options=described))

    @rtvi.event_handler("on_client_ready")
    async def on_client_ready(rtvi: RTVIProcessor) -> None:
        await rtvi.set_bot_ready()

    return rtvi


async def bot(websocket: WebSocket) -> None:
    options = {"audio_in_enabled": True, "audio_out_enabled": True, "serializer": ProtobufFrameSerializer()}
    transport = FastAPIWebsocketTransport(websocket, FastAPIWebsocketParams(**options))
    rtvi = configured_rtvi()
    task = PipelineTask(
        Pipeline([transport.input(), rtvi, Echo(), transport.output()]),
        params=PipelineParams(audio_in_sample_rate=16000, audio_out_sample_rate=16000),
        observers=[RTVIObserver(rtvi)],
        idle_timeout_secs=None,
    )

    cancellations = []

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        # Not awaited here: a pipeline that ends by itself waits for this handler.
        cancellations.append(asyncio.create_task(task.cancel()))

    with host.sessions.live(TaskSession(task, rtvi, transport.output())):
        await PipelineRunner(handle_sigint=False).run(task)


if __name__ == "__main__":
    host.add_bot(bot)
    host.run()
