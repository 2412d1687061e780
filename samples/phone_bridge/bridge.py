"""One call: Twilio Media Streams on the one side, a session with a bot on the other."""

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.sync.server import ServerConnection

from rtvi_sync import RTVIError, connect
from rtvi_sync.media.convert import ResamplingSink, decode_mulaw, encode_mulaw

RATE_HZ = 8_000
KEYS = frozenset("0123456789*#")


class Earpiece:
    """What the caller hears: a sink of the bot's audio at 8 kHz, which Twilio buffers and plays in real time."""

    LAST_WORD = "last word"  # the name of the mark behind the bot's last audio

    def __init__(self, websocket: ServerConnection, stream: str) -> None:
        self._websocket = websocket
        self._stream = stream

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:  # noqa: ARG002 - it is always 8 kHz
        """Have Twilio play this next."""
        self._send("media", media={"payload": base64.b64encode(encode_mulaw(pcm)).decode()})

    def drop(self) -> None:
        """Have Twilio discard what it has not played: the caller has interrupted the bot."""
        self._send("clear")

    def close(self) -> None:
        """Have Twilio tell when everything is played: the session has ended."""
        self._send("mark", mark={"name": self.LAST_WORD})

    def _send(self, event: str, **content: Any) -> None:
        with contextlib.suppress(ConnectionClosed):  # the caller has hung up
            self._websocket.send(json.dumps({"event": event, "streamSid": self._stream, **content}))


def hold_call(websocket: ServerConnection, url: str) -> None:
    """Hold one call, on its thread of the server, until the caller hangs up or the bot's last word is played."""
    try:
        with contextlib.suppress(ConnectionClosed):  # the caller has hung up without a word
            _relay(websocket, url)
    except (ValueError, RecursionError) as error:
        print("no call of Twilio's:", error, flush=True)
        websocket.close(CloseCode.INVALID_DATA)
    except RTVIError as error:
        print("no bot for this call:", error, flush=True)


def _relay(websocket: ServerConnection, url: str) -> None:
    with contextlib.ExitStack() as stack:
        client = transport = None
        for event in _events_of(websocket):
            match event:
                case {"event": "start", "streamSid": str(stream)} if client is None:
                    print("call", stream, flush=True)
                    stack.callback(print, "end of", stream, flush=True)
                    speaker = ResamplingSink(Earpiece(websocket, stream), RATE_HZ)
                    client = stack.enter_context(connect(url, mic=False, speaker=speaker, connect_timeout=15))
                    transport = client.transport
                case {"event": "media", "media": {"payload": str(payload)}} if transport is not None:
                    voice = decode_mulaw(base64.b64decode(payload, validate=True))
                    with contextlib.suppress(RTVIError):  # the bot has left, and its last words are still being played
                        transport.send_audio(voice, RATE_HZ)
                case {"event": "dtmf", "dtmf": {"digit": str(key)}} if client is not None and key in KEYS:
                    with contextlib.suppress(RTVIError):  # the bot has left, or is too old to know keys
                        client.send_dtmf(key)
                case {"event": "stop"} | {"event": "mark", "mark": {"name": Earpiece.LAST_WORD}}:
                    return


def _events_of(websocket: ServerConnection) -> Iterator[dict[str, Any]]:
    """Yield what Twilio sends; raise `ValueError` if it is not Twilio that sends."""
    for message in websocket:
        event = json.loads(message)
        if not (isinstance(event, dict) and isinstance(event.get("event"), str)):
            raise ValueError(f"it has sent {message[:60]!r}")
        yield event
