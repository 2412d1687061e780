"""A running bot, as the controls of serving.py see it. For every version of Pipecat."""

from __future__ import annotations

from typing import Any

from pipecat.frames.frames import EndFrame, ErrorFrame
from pipecat.processors.frame_processor import FrameDirection
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame
from pipecat.transports.base_transport import BaseTransport


class PipelineSession:
    """One running pipeline.

    Args:
        task: Pipecat's own for the pipeline, which later versions call a worker.
        transport: the two ends of the pipeline.
    """

    def __init__(self, task: Any, transport: BaseTransport) -> None:
        self._task = task
        self._transport = transport

    async def end(self) -> None:
        await self._task.queue_frame(EndFrame())

    async def cancel(self) -> None:
        await self._task.cancel()

    async def fail(self, error: str) -> None:
        # A task heeds an error only from its own pipeline, upstream.
        await self._transport.output().push_frame(ErrorFrame(error, fatal=True), FrameDirection.UPSTREAM)

    async def send(self, data: Any) -> None:
        await self._task.queue_frame(RTVIServerMessageFrame(data))
