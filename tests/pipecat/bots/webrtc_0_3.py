"""Pipecat 0.0.62 (RTVI 0.3), the first that has a WebRTC transport, behind FastAPI: sends audio and pictures back.

16 kHz both ways, pictures of 160 x 120.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frameworks.rtvi import RTVIProcessor
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.network.small_webrtc import SmallWebRTCTransport
from pipecat.transports.network.webrtc_connection import SmallWebRTCConnection
from serving import Host
from session import PipelineSession
from sounds import Echo

host = Host()
bots: set[asyncio.Task[None]] = set()


async def bot(connection: SmallWebRTCConnection) -> None:
    params = TransportParams(
        audio_in_enabled=True,
        audio_out_enabled=True,
        camera_in_enabled=True,
        camera_out_enabled=True,
        camera_out_is_live=True,
        camera_out_width=160,
        camera_out_height=120,
    )
    transport, rtvi = SmallWebRTCTransport(connection, params), RTVIProcessor()

    @rtvi.event_handler("on_client_ready")
    async def on_client_ready(rtvi: RTVIProcessor) -> None:
        await rtvi.set_bot_ready()

    task = PipelineTask(
        Pipeline([transport.input(), rtvi, Echo(), transport.output()]),
        params=PipelineParams(audio_in_sample_rate=16000, audio_out_sample_rate=16000),
    )

    @transport.event_handler("on_client_closed")
    async def on_client_closed(*_: object) -> None:
        await task.cancel()

    with host.sessions.live(PipelineSession(task, transport)):
        await PipelineRunner(handle_sigint=False).run(task)


@host.app.post("/api/offer")
async def offer(request: dict[str, Any]) -> Any:
    """Answer an offer, and run a bot for it."""
    connection = SmallWebRTCConnection()
    await connection.initialize(sdp=request["sdp"], type=request["type"])
    bots.add(running := asyncio.create_task(bot(connection)))
    running.add_done_callback(bots.discard)
    return connection.get_answer()


if __name__ == "__main__":
    host.run()
