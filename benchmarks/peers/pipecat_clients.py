"""The client transport of `pipecat-ai` for WebSockets, in a pipeline."""

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar

os.environ["LOGURU_LEVEL"] = "WARNING"  # each message is logged at DEBUG, which is shown if nothing else is said

from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InputTransportMessageFrame,
    OutputAudioRawFrame,
    OutputTransportMessageUrgentFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.websocket.client import (
    WebsocketClientParams,
    WebsocketClientTransport,
)
from pipecat.workers.runner import WorkerRunner

from ..server_frames import FRAME_BYTES, FRAMES_PER_SECOND, SAMPLE_RATE_HZ
from .base import FRAME, LIMIT
from .loops import MessageLoopPeer, run


class _Taking(FrameProcessor):  # type: ignore[misc]
    """The program's own part of the pipeline."""

    def __init__(self, peer: PipecatPipeline) -> None:
        super().__init__()
        self._peer = peer

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputTransportMessageFrame):
            self._peer.take_message(frame.message)
        elif isinstance(frame, InputAudioRawFrame):
            self._peer.take_audio(frame.audio)
        else:
            await self.push_frame(frame, direction)


class PipecatPipeline(MessageLoopPeer):
    """As its users build a client: the transport at both ends, and between them a processor that takes the frames."""

    package = "pipecat"
    cannot: ClassVar = {
        "instructions": "counting them takes minutes",
        "own-audio-100": "it falls minutes behind with as many sessions in a process",
    }

    async def _open(self) -> None:
        transport = WebsocketClientTransport(
            self.url,
            WebsocketClientParams(
                serializer=ProtobufFrameSerializer(),
                audio_in_enabled=True,
                audio_out_enabled=True,
                audio_out_10ms_chunks=100 // FRAMES_PER_SECOND,
                audio_out_auto_silence=False,
                audio_out_end_silence_secs=0,
                add_wav_header=False,
            ),
        )
        self._worker = PipelineWorker(
            Pipeline([transport.input(), _Taking(self), transport.output()]),
            params=PipelineParams(audio_in_sample_rate=SAMPLE_RATE_HZ, audio_out_sample_rate=SAMPLE_RATE_HZ),
            enable_rtvi=False,  # it would add the part of the bot
            enable_turn_tracking=False,
            idle_timeout_secs=None,
        )
        started = asyncio.Event()

        async def note_start(*_: Any) -> None:
            started.set()

        self._worker.add_event_handler("on_pipeline_started", note_start)
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self._worker)
        self._run = self.loop.create_task(runner.run())
        await started.wait()

    async def _say(self, message: dict[str, Any]) -> None:
        await self._worker.queue_frame(OutputTransportMessageUrgentFrame(message=message))

    async def _send_audio(self, pcm: bytes) -> None:
        await self._worker.queue_frame(OutputAudioRawFrame(audio=pcm, sample_rate=SAMPLE_RATE_HZ, num_channels=1))

    def wait_heard(self, number: int) -> None:
        run(asyncio.wait_for(self._wait_heard(number), LIMIT), self.loop)

    async def _wait_heard(self, number: int) -> None:
        # Sound waits in a queue that messages do not pass through.
        while len(self._heard) * FRAME_BYTES < number:
            await asyncio.sleep(0.001)

    async def _keep_talking(self) -> None:
        # The transport paces the audio: a second at a time is less work than one frame after the other.
        due = self.loop.time()
        while True:
            await self._send_audio(FRAME * FRAMES_PER_SECOND)
            due += 1
            await asyncio.sleep(due - self.loop.time())

    async def _close(self) -> None:
        await self._stop_talking()
        await self._worker.cancel()
        await self._run
