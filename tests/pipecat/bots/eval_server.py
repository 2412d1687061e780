"""The stock bot in the runner of Pipecat 1.5 to 1.12 with `-t eval`: a WebSocket server, and no HTTP and no controls.

One pipeline serves one client after the other.
"""

import contextlib
import sys
from typing import Any

with contextlib.suppress(ImportError):  # Pipecat 1.12 needs it no more
    import sentences  # noqa: F401
from pipecat.runner.run import main
from pipecat.transports.websocket import server as websocket_server
from serving import end_with_parent
from stock import bot, host

__all__ = ["bot"]  # the runner looks for it here


def serve_on_listener(handler: Any, _host: str, _port: int, **options: Any) -> Any:
    host.announce()
    return websockets_serve(handler, sock=host.listener, **options)


if __name__ == "__main__":
    end_with_parent()
    # The transport can be given the number of a port, not a socket that already listens on a port found free.
    websockets_serve = websocket_server.websocket_serve
    websocket_server.websocket_serve = serve_on_listener
    sys.argv[1:1] = ["-t", "eval", "--host", "localhost", "--port", str(host.port)]
    main()
