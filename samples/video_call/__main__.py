"""A video call: the bot hears and sees the user; a window shows its picture, until q, Ctrl-C or the bot's end.

    python3 run.py sample video_call --url http://localhost:7860

Without a display its pictures go to a folder; without a camera it sees bars of colour. README.md has more.
"""

import argparse
import sys
from itertools import islice
from pathlib import Path

from rtvi_sync import EventStream, RequestTimeoutError, RTVIClient, RTVIError
from rtvi_sync.cli import run_program
from rtvi_sync.media import FileVideoSource, VideoTrack

from .colour_bars import ColourBars
from .views import Folder, View, Window, has_display

PATIENCE = 20  # seconds for the bot's first picture


def call(client: RTVIClient, view: View, most: int | None) -> None:
    """Hold the call, and show at most `most` pictures of the bot."""
    client.on("user-transcription", lambda said: print("you:", said.text, flush=True) if said.final else None)
    client.on("turn-ended", lambda turn: print("bot:", turn.bot_text, flush=True) if turn.bot_text else None)
    with client.events("track_started", timeout=PATIENCE) as tracks, client:
        # With a buffer of 1 each picture is the newest one.
        for picture in islice(bot_video(tracks).frames(buffer=1), most):
            if not view.show(picture):
                break
    print(view.summary())


def bot_video(tracks: EventStream) -> VideoTrack:
    """Return the track of the bot's pictures, once there is one."""
    try:
        for event in tracks:
            track = event.data.track
            if isinstance(track, VideoTrack) and not event.data.participant.local:
                return track
    except RequestTimeoutError:
        pass
    raise RTVIError("The bot shows no picture; its TransportParams need video_out_enabled=True")


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser(prog="run.py sample video_call")
    parser.add_argument("--url", default="http://localhost:7860", help="where the bot is: http://... of its server")
    parser.add_argument("--film", type=Path, help="what the bot sees in place of the camera")
    parser.add_argument("--folder", type=Path, help="keep the bot's pictures here, and open no window")
    parser.add_argument("--most", type=int, metavar="N", help="end after N pictures")
    parser.add_argument("--silent", action="store_true", help="use neither microphone nor speaker")
    given = parser.parse_args()
    client = RTVIClient.for_url(given.url, transport="webrtc", enable_cam=True, max_turn_audio=0, connect_timeout=15)
    if given.silent:
        client.update_mic(False)
        client.update_speaker(False)
    if given.film:
        client.update_cam(FileVideoSource(given.film))
    elif not client.get_all_cams():
        client.update_cam(ColourBars())
    folder = given.folder or (None if has_display() else Path("video_call"))
    call(client, Folder(folder) if folder else Window(), given.most)


if __name__ == "__main__":
    sys.exit(run_program(main))
