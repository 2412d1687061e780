"""One call: Twilio Media Streams on the one side, a session with a bot on the other.

Of Twilio's messages

* `start` connects to the bot;
* `media`, 20 ms of µ-law at 8 kHz, goes to the bot as PCM at 16 kHz, once the bot is ready;
* `dtmf`, a key of the caller's telephone, goes to a bot of RTVI 2.0 or later (Pipecat 1.5.0);
* `mark`, which follows the bot's last word, ends the call;
* `stop`, or the end of the connection, ends the session: the caller has hung up;
* any other ends the call with code 1007.

Twilio gets `media` when the bot speaks, `clear` when it is interrupted, which discards the audio not yet played, and
`mark` behind the last audio when the bot ends the session.
"""

import base64
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.sync.server import ServerConnection

from rtvi_sync import DisconnectedError, RTVIClient, RTVIError
from rtvi_sync.media import CallbackSink
from rtvi_sync.media.convert import ResamplingSink, decode_mulaw, encode_mulaw

RATE_HZ = 8_000
BOT_RATE_HZ = 16_000  # at which bots of Pipecat read all audio
KEYS = frozenset("0123456789*#")


class Earpiece:
    """The caller's ear: a sink of the bot's audio at 8 kHz, which Twilio buffers and plays in real time."""

    LAST_WORD = "last word"  # the name of the mark behind the bot's last audio

    def __init__(self, websocket: ServerConnection, stream: str) -> None:
        self._websocket = websocket
        self._stream = stream

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:  # noqa: ARG002 - it is always 8 kHz
        """Have Twilio play this next."""
        self._send("media", media={"payload": base64.b64encode(encode_mulaw(pcm)).decode()})

    def drop(self) -> None:
        """Have Twilio discard the audio that it has not played: the caller has interrupted the bot."""
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
        client = voice = None
        for event in _events_of(websocket):
            match event:
                case {"event": "start", "streamSid": str(stream)} if client is None:
                    name = f"{stream[:60]!r}"  # any stranger may have sent it: no terminal obeys its repr
                    print("call", name, flush=True)
                    stack.callback(print, "end of", name, flush=True)
                    client = RTVIClient.for_url(
                        url,
                        mic=False,
                        speaker=ResamplingSink(Earpiece(websocket, stream), RATE_HZ),
                        connect_timeout=15,
                    )
                    voice = ResamplingSink(CallbackSink(_way_to_bot(client)), BOT_RATE_HZ)
                    # On a thread of its own, so that this thread notices when the caller hangs up.
                    connecting = threading.Thread(target=_connect, args=(client, websocket))
                    connecting.start()
                    stack.callback(connecting.join)
                    stack.callback(client.close)  # ends the attempt, too
                case {"event": "media", "media": {"payload": str(payload)}}:
                    pcm = decode_mulaw(base64.b64decode(payload, validate=True))
                    if voice is not None:
                        voice.write(pcm, RATE_HZ)
                case {"event": "dtmf", "dtmf": {"digit": str(key)}} if client is not None and key in KEYS:
                    with contextlib.suppress(RTVIError):  # the bot is not ready, has left, or is too old to know keys
                        client.send_dtmf(key)
                case {"event": "stop"} | {"event": "mark", "mark": {"name": Earpiece.LAST_WORD}}:
                    return


def _way_to_bot(client: RTVIClient) -> Callable[[bytes, int], None]:
    def send(pcm: bytes, sample_rate_hz: int) -> None:
        assert client.transport is not None  # the one in use, of several
        with contextlib.suppress(RTVIError):  # the bot is not ready, or has left
            client.transport.send_audio(pcm, sample_rate_hz)

    return send


def _connect(client: RTVIClient, websocket: ServerConnection) -> None:
    try:
        client.connect()
    except RTVIError as error:
        if isinstance(error, DisconnectedError) and error.initiator == "client":
            return  # the caller has hung up
        print("no bot for this call:", error, flush=True)
        websocket.close()


def _events_of(websocket: ServerConnection) -> Iterator[dict[str, Any]]:
    """Yield Twilio's messages; raise `ValueError` if another program sends them."""
    for message in websocket:
        event = json.loads(message)
        if not (isinstance(event, dict) and isinstance(event.get("event"), str)):
            raise ValueError(f"it has sent {message[:60]!r}")
        yield event
