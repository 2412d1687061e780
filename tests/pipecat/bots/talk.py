"""Pipecat 1.14.0 behind FastAPI: a bot that listens, answers and speaks."""

import argparse

from fastapi import WebSocket
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipelines import run, talk_worker, transport_options
from serving import Host
from session import PipelineSession

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("transcript", nargs="*", default=["hello bot"], help="what the bot hears, one for each utterance")
transcripts = parser.parse_args().transcript
host = Host()


async def bot(websocket: WebSocket) -> None:
    transport = FastAPIWebsocketTransport(websocket, FastAPIWebsocketParams(**transport_options()))
    worker = talk_worker(transport, transcripts)
    with host.sessions.live(PipelineSession(worker, transport)):
        await run(worker, transport)


if __name__ == "__main__":
    host.add_bot(bot)
    host.run()
