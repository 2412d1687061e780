"""Pipecat 1.14.0 in its own development runner: the talking bot behind `/start` and `/ws-client`.

The arguments are the runner's, after `-t websocket --host localhost`: `--ws-auth token` asks for one-use tokens, and
with `--host 127.0.0.1` the runner advertises a `wss://` URL that it does not serve.
"""

import sys

import uvicorn
from pipecat.runner.run import app, main
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams
from pipelines import run, talk_worker, transport_options
from serving import Host
from session import PipelineSession

host = Host(app, ws_path="/ws-client")


async def bot(runner_args: RunnerArguments) -> None:
    """Run the bot; the runner calls this for each connection."""
    transport = await create_transport(
        runner_args, {"websocket": lambda: FastAPIWebsocketParams(**transport_options())}
    )
    worker = talk_worker(transport, ["hello bot"])
    with host.sessions.live(PipelineSession(worker, transport)):
        await run(worker, transport)


if __name__ == "__main__":
    # The runner can be given the number of a port, not a socket that already listens on a port found free.
    uvicorn.run = lambda *_, **__: host.run()
    sys.argv[1:1] = ["-t", "websocket", "--host", "localhost", "--port", str(host.port)]
    main()
