"""A client in its own process, whose memory is measured: connects to the bot at argv[1] and listens to everything.

For each `server-message` "mark" it prints the peak size of the process so far, in MB.
"""

import logging
import re
import sys
from pathlib import Path

from rtvi_sync import RTVIClient, RTVIEvent, WebSocketTransport
from rtvi_sync.media import NullSink, SilenceSource

logging.basicConfig(level=logging.WARNING)
client = RTVIClient(
    transport=WebSocketTransport(sys.argv[1]), mic=SilenceSource(), speaker=NullSink(), connect_timeout=120.0
)
for event in RTVIEvent:
    client.on(event, lambda data: repr(data)[:100])
with client.events("server-message", timeout=120.0) as marks:
    client.connect()
    track = client.tracks().bot.audio
    assert track is not None
    frames = track.frames()
    for mark in marks:
        if mark.data == "mark":
            # Not `ru_maxrss`, which starts at the size of the parent process.
            (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
            sys.stdout.write(f"{int(peak) // 1024}\n")
            sys.stdout.flush()
        elif mark.data == "end":
            break
    client.disconnect()
