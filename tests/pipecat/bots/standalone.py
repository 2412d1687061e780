"""Pipecat 1.14.0 on its standalone server, which serves one client at a time: the talking bot, a new one for each."""

import argparse
import asyncio
import contextlib
from typing import Any

from pipecat.pipeline.worker import PipelineWorker
from pipecat.transports.base_transport import BaseTransport
from pipecat.transports.websocket import server as websocket_server
from pipecat.transports.websocket.server import SingleClientWebsocketServerParams, SingleClientWebsocketServerTransport
from pipelines import run, talk_worker, transport_options
from serving import Host, listen
from session import PipelineSession

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("transcript", nargs="*", default=["hello bot"], help="what the bot hears, one for each utterance")
transcripts = parser.parse_args().transcript
listener = listen()


class StandaloneSession(PipelineSession):
    """A running worker, and the connection that it serves."""

    def __init__(self, worker: PipelineWorker, transport: BaseTransport, connection: Any) -> None:
        super().__init__(worker, transport)
        self.connection = connection


class StandaloneHost(Host):
    """The controls, on a port of their own beside the server that Pipecat runs."""

    def __init__(self) -> None:
        super().__init__()
        self.ws_url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        self.add_connect()

    def drop(self) -> int:
        sessions = self.sessions.now()
        for session in sessions:
            session.connection.transport.abort()
        return len(sessions)

    async def serve_clients(self) -> None:
        """Run a bot for one client after the other; a client that connects in between waits in the listener's queue."""
        while not self.is_stopping:
            transport = SingleClientWebsocketServerTransport(SingleClientWebsocketServerParams(**transport_options()))
            worker = talk_worker(transport, transcripts)
            with contextlib.ExitStack() as stack:

                @transport.event_handler("on_client_connected")
                async def on_client_connected(
                    transport: Any, connection: Any, worker: Any = worker, stack: Any = stack
                ) -> None:
                    stack.enter_context(self.sessions.live(StandaloneSession(worker, transport, connection)))

                await run(worker, transport)


def serve_on_listener(handler: Any, _host: str, _port: int, **options: Any) -> Any:
    return websockets_serve(handler, sock=listener.dup(), **options)


async def main() -> None:
    host = StandaloneHost()
    async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]  # since Python 3.11
        group.create_task(host.serve_clients())
        await host.serve()


if __name__ == "__main__":
    # The transport can be given the number of a port, not a socket that already listens on a port found free.
    websockets_serve = websocket_server.websocket_serve
    websocket_server.websocket_serve = serve_on_listener
    asyncio.run(main())
