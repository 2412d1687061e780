"""A telephone number for a bot: a server for Twilio Media Streams that holds a session for each call.

    python3 run.py sample phone_bridge --url http://localhost:7860 --port 8080

Without a URL the callers talk to the embedded bot. README.md beside this file says how Twilio finds the bridge.

In production:

* Every client that knows the address reaches the bot, at your expense. Let the proxy pass only a secret path, or check
  `X-Twilio-Signature` (https://www.twilio.com/docs/usage/security).
* A call takes the threads of its WebSocket; the bot's audio is written by workers that all calls share. 50 calls in
  which both sides speak took up to 74 % of a core, without a gap over 20 ms, and 25 took 36 %; the conversion to 16 kHz
  adds 4 % for 50. On a slower machine 50 took a whole core, with gaps of up to 260 ms. So start a process for each 25
  to 50 calls, depending on the machine.
"""

import argparse
import contextlib
import socket
import sys
import threading

from websockets.sync.server import ServerConnection, serve

from rtvi_sync import RTVIClient
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot

from .bridge import hold_call

MAX_MESSAGE_BYTES = 65_536  # Twilio's have some hundred


def main() -> None:
    """Read the command line, and answer calls until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="run.py sample phone_bridge", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("--port", type=int, default=8080, help="of this server; 0: any free one")
    given = parser.parse_args()
    if given.url:
        RTVIClient.for_url(given.url)  # refuses a wrong URL here, and not when the first caller waits
    calls: set[ServerConnection] = set()
    ending = threading.Event()

    def answer(call: ServerConnection) -> None:
        calls.add(call)
        if not ending.is_set():
            hold_call(call, url)
        calls.discard(call)

    def end_calls() -> None:
        ending.set()
        for call in calls.copy():
            with contextlib.suppress(OSError):  # it has ended
                call.socket.shutdown(socket.SHUT_RDWR)

    with contextlib.ExitStack() as stack:
        url = given.url or stack.enter_context(EmbeddedBot()).ws_url
        stack.callback(end_calls)  # when the server has closed, which before version 17 leaves its connections open
        server = stack.enter_context(
            serve(answer, "127.0.0.1", given.port, compression=None, max_size=MAX_MESSAGE_BYTES)
        )
        print(f"Waiting for calls at ws://127.0.0.1:{server.socket.getsockname()[1]}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    sys.exit(run_program(main))
