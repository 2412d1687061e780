"""Pipecat 1.14.0 behind FastAPI: a bot that sends the user's audio back."""

from fastapi import WebSocket
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipelines import echo_worker, run, transport_options
from serving import Host
from session import PipelineSession

host = Host()


async def bot(websocket: WebSocket) -> None:
    transport = FastAPIWebsocketTransport(websocket, FastAPIWebsocketParams(**transport_options()))
    worker = echo_worker(transport)
    with host.sessions.live(PipelineSession(worker, transport)):
        await run(worker, transport)


if __name__ == "__main__":
    host.add_bot(bot)
    host.run()
