"""Pipecat's own development runner, with the entries that most of Pipecat's examples have: no `websocket`.

`--entries eval,websocket` gives it others. `--echo` makes it send the user's audio back, 16 kHz both ways, and, over
WebRTC, the camera's pictures of 160x120, or of the size that `--pictures` has; without it the bot listens, answers and
speaks, and its model calls functions (see functions.py). `--no-rtvi` makes it an echo without RTVI. All other arguments
are the runner's, after `--host localhost`.
"""

import os
import sys
from typing import Any

import uvicorn
from answers import ShowAndTell
from functions import register_functions
from pipecat.evals.transport import EvalTransportParams
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.runner.run import app, main
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.base_transport import BaseTransport, TransportParams
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams
from pipelines import echo_worker, run, speaking_worker
from serving import Host
from session import PipelineSession
from standins import RepeatingLLM

talks, has_rtvi = not {"--echo", "--no-rtvi"}.intersection(sys.argv), "--no-rtvi" not in sys.argv


def option(name: str, value: str) -> str:
    """Take an option out of the arguments; return its value, or the given one without it."""
    if name in sys.argv:
        position = sys.argv.index(name)
        value = sys.argv.pop(position + 1)
        del sys.argv[position]
    return value


width, height = map(int, option("--pictures", "160x120").split("x"))
AUDIO = {"audio_in_enabled": True, "audio_out_enabled": True}
ENTRIES = {
    "eval": lambda: EvalTransportParams(**AUDIO),
    **dict.fromkeys(("twilio", "telnyx", "plivo", "exotel"), lambda: FastAPIWebsocketParams(**AUDIO)),
    "webrtc": lambda: TransportParams(
        **AUDIO,
        video_in_enabled=not talks,
        video_out_enabled=not talks,
        video_out_is_live=True,
        video_out_width=width,
        video_out_height=height,
    ),
    "websocket": lambda: FastAPIWebsocketParams(serializer=ProtobufFrameSerializer(), **AUDIO),
}
names = option("--entries", "eval,twilio,webrtc").split(",")
transport_params = {name: ENTRIES[name] for name in names}
sys.argv = [argument for argument in sys.argv if argument not in ("--echo", "--no-rtvi")]
host = Host(app)


def talking_worker(transport: BaseTransport) -> PipelineWorker:
    context, llm = LLMContext(), RepeatingLLM()
    worker = speaking_worker(transport, ["hello bot"], context, llm)

    async def show(scene: str) -> None:
        raise ValueError(f"this bot has no scene {scene!r}")

    register_functions(llm, worker.rtvi)
    worker.rtvi.add_event_handler("on_client_message", ShowAndTell(show, context, []).answer)
    return worker


async def bot(runner_args: RunnerArguments) -> None:
    """Run the bot; the runner calls this for each connection."""
    transport = await create_transport(runner_args, transport_params)
    if not talks and hasattr(transport, "capture_participant_video"):  # over WebRTC

        @transport.event_handler("on_client_connected")
        async def on_client_connected(_: BaseTransport, connection: Any) -> None:
            await transport.capture_participant_video(connection.pc_id)

    worker = talking_worker(transport) if talks else echo_worker(transport, enable_rtvi=has_rtvi)
    with host.sessions.live(PipelineSession(worker, transport)):
        await run(worker, transport)


if __name__ == "__main__":
    for name in ("TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN", "TELNYX_API_KEY", "PLIVO_AUTH_ID", "PLIVO_AUTH_TOKEN"):
        os.environ.setdefault(name, "none")  # the serializers want some, and use them to hang up
    # The runner can be given the number of a port, not a socket that already listens on a port found free.
    uvicorn.run = lambda *_, **__: host.run()
    sys.argv[1:1] = ["--host", "localhost", "--port", str(host.port)]
    main()
