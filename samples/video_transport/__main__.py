"""Show a bot the camera's picture, over a transport that carries video: `transport.py` beside this file.

    python3 run.py sample video_transport
    python3 run.py sample video_transport film.mp4
    python3 run.py sample video_transport --url tcp://localhost:7070 film.mp4

Without a URL it talks to the small bot below. Asked to look, that bot waits for some pictures, keeps the last one as
seen.jpg, and reports how many it received. A film, or a photo, stands for the camera.
"""

import argparse
import json
import queue
import socketserver
import sys
import threading
from pathlib import Path
from typing import Any

from rtvi_sync import RTVIClient
from rtvi_sync.cli import run_program
from rtvi_sync.media import FileVideoSource, VideoSource

from .transport import VideoLineTransport

ENOUGH = 5
pictures: queue.Queue[tuple[dict[str, Any], bytes]] = queue.Queue(maxsize=ENOUGH)


class Bot(socketserver.StreamRequestHandler):
    """The bot's end of a connection, for messages or for pictures."""

    def handle(self) -> None:
        """Answer the messages of a client."""
        for line in self.rfile:
            message = json.loads(line)
            if message["type"] == "picture":
                pictures.put(
                    (message, self.rfile.read(message["bytes"]))
                )  # while it is full, the camera skips pictures
            elif message["type"] == "client-ready":
                self.say("bot-ready", {"version": "2.2.0", "about": {"library": "video_transport"}}, message["id"])
            elif message["type"] == "client-message":
                seen = [pictures.get(timeout=30) for _ in range(ENOUGH)]
                about, jpeg = seen[-1]
                Path("seen.jpg").write_bytes(jpeg)
                answer = f"I saw {len(seen)} pictures of {about['width']} x {about['height']}. The last is in seen.jpg."
                self.say("server-response", {"t": message["data"]["t"], "d": answer}, message["id"])

    def say(self, type: str, data: Any, id: str) -> None:
        """Send a message."""
        self.wfile.write(json.dumps({"label": "rtvi-ai", "type": type, "data": data, "id": id}).encode() + b"\n")


def talk(url: str, cam: VideoSource | None) -> None:
    """Hold a session with the bot."""
    with RTVIClient(transport=VideoLineTransport(url), cam=cam, connect_timeout=15) as client:
        client.enable_cam(True)
        if client.tracks().local.video is not None:  # otherwise a warning has said why there is no camera
            print(client.send_client_request("what-do-you-see", timeout=30))


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser(prog="run.py sample video_transport")
    parser.add_argument("--url", help="tcp://host:port of a bot, because this transport is neither HTTP nor WebSocket")
    parser.add_argument("film", nargs="?", help="in place of the camera")
    given = parser.parse_args()
    cam = FileVideoSource(given.film) if given.film else None
    if given.url:
        talk(given.url, cam)
        return
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Bot) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            talk(f"tcp://127.0.0.1:{server.server_address[1]}", cam)
        finally:
            server.shutdown()


if __name__ == "__main__":
    sys.exit(run_program(main))
