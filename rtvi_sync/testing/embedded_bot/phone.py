"""The embedded bot behind a telephone provider: calls, their messages, and the bot's request to hang up."""

from __future__ import annotations

import http.client
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import quote, urlsplit

import attrs

from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.media.convert import decode_alaw, decode_mulaw, encode_alaw, encode_mulaw
from rtvi_sync.media.pcm import to_mono
from rtvi_sync.media.resample import LinearResampler
from rtvi_sync.protocol.frames import AudioRawFrame, Frame, InterruptionFrame
from rtvi_sync.protocol.telephony import (
    PROVIDERS,
    RATE_HZ,
    CallAudio,
    CallEnd,
    Codec,
    KeyPress,
    PhoneCall,
    PlaybackMark,
    ProviderName,
)
from rtvi_sync.testing.embedded_bot.messages import parse

logger: logging.Logger = package_logger(__name__)

_ENCODERS: Final[Mapping[Codec, Callable[[bytes], bytes]]] = {"PCMU": encode_mulaw, "PCMA": encode_alaw, "L16": bytes}
_DECODERS: Final[Mapping[Codec, Callable[[bytes], bytes]]] = {"PCMU": decode_mulaw, "PCMA": decode_alaw, "L16": bytes}

# -- calls ------------------------------------------------------------------------------------------------------------


@attrs.define(kw_only=True, eq=False)
class BotCall:
    """A telephone call, from the bot's side. Any thread may read it.

    Attributes:
        provider: "twilio", "telnyx", "plivo" or "exotel".
        call_id, stream_id: Ids from the provider.
        from_number, to_number: Numbers of the caller and the bot; None if the provider has not reported them.
        parameters: Parameters of the calling application, by name.
        dtmf: Keys that the caller has pressed so far, such as "12#".
        marks: Names of the bot's played marks, in the order of the provider's reports.
    """

    provider: ProviderName
    call_id: str
    stream_id: str
    from_number: str | None = attrs.field(repr=False)
    to_number: str | None = attrs.field(repr=False)
    parameters: Mapping[str, str] = attrs.field(repr=False)
    dtmf: str = attrs.field(default="", repr=False)
    marks: tuple[str, ...] = ()


def begin_call(call: PhoneCall) -> BotCall:
    """Return a new call, before any event."""
    return BotCall(
        provider=call.provider,
        call_id=call.call_id,
        stream_id=call.stream_id,
        from_number=call.from_number,
        to_number=call.to_number,
        parameters=call.parameters,
    )


class PhoneRoute:
    """The encoding of one telephone call: a provider's JSON text. Any thread may use it.

    Args:
        call: Call as the provider reported it.
    """

    def __init__(self, call: PhoneCall) -> None:
        self.call: Final = call
        self._provider = PROVIDERS[call.provider]

    def encode(self, frame: Frame) -> str | None:
        """Return the text for a frame: audio, or `clear` for an interruption; None for RTVI messages."""
        if isinstance(frame, InterruptionFrame):
            return self._provider.bot_clear(self.call).decode()
        if not isinstance(frame, AudioRawFrame):
            return None
        payload = _ENCODERS[self._provider.bot_codec](_for_telephone(frame))
        return self._provider.bot_audio(self.call, payload).decode() if payload else None

    def mark(self, name: str) -> str:
        """Return the text that asks the provider to report when all audio sent before it has been played."""
        return self._provider.bot_mark(self.call, name).decode()

    def decode(self, data: bytes | str) -> AudioRawFrame | PlaybackMark | KeyPress | CallEnd | None:
        """Return the content of a provider's message; None if the bot ignores it, as with all binary messages.

        Raises:
            ProtocolError: The text is not a message of a provider.
        """
        heard = self._provider.read_caller(data) if isinstance(data, str) else None
        if isinstance(heard, CallAudio):
            pcm = _DECODERS[self.call.codec](heard.payload)
            return AudioRawFrame(audio=pcm, sample_rate=RATE_HZ, num_channels=1)
        return heard


def _for_telephone(frame: AudioRawFrame) -> bytes:
    pcm = frame.audio if frame.num_channels == 1 else to_mono(frame.audio, frame.num_channels)
    if frame.sample_rate == RATE_HZ:
        return pcm
    # Frame by frame, because several threads may send. Linear, so that calls sound the same on every machine.
    resampler = LinearResampler(frame.sample_rate, RATE_HZ)
    return resampler.convert(pcm) + resampler.finish()


def may_open_call(text: str) -> bool:
    """Return whether the first message of a WebSocket resembles a provider's, so that the second may open a call.

    Pipecat bots read two messages before they decide. A client that sends only one waits forever.
    """
    received = parse(text)
    return isinstance(received, dict) and isinstance(received.get("event"), str)


# -- hanging up -------------------------------------------------------------------------------------------------------

#: Method and path of the request that ends a call, with names for their parts. Exotel's bots send none.
HANG_UP_REQUESTS: Final[Mapping[ProviderName, tuple[str, str]]] = {
    "twilio": ("POST", "/2010-04-01/Accounts/{account}/Calls/{call_id}.json"),
    "telnyx": ("POST", "/v2/calls/{call_id}/actions/hangup"),
    "plivo": ("DELETE", "/v1/Account/{account}/Call/{call_id}/"),
}
#: Parameters of Twilio's request. Its path has other uses.
_BODIES: Final[Mapping[ProviderName, bytes]] = {"twilio": b"Status=completed"}
_ACCOUNT: Final = "embedded-bot"


class HangUpRequest:
    """The bot's request that the provider end a call.

    Args:
        call: A call of a provider in `HANG_UP_REQUESTS`.
        url: URL of the HTTP server that receives the request.
    """

    def __init__(self, call: PhoneCall, url: str) -> None:
        server = urlsplit(url)
        self._method, path = HANG_UP_REQUESTS[call.provider]
        self._path = path.format(account=_ACCOUNT, call_id=quote(call.call_id, safe=""))
        self._body = _BODIES.get(call.provider)
        self._connection = http.client.HTTPConnection(server.hostname or "", server.port)
        self._cancelled = False

    def send(self) -> None:
        """Send the request, and block without a limit until it is answered or cancelled, as Pipecat bots do.

        A failure is logged, because the bot leaves the call in any case.
        """
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if self._body else {}
        try:
            self._connection.connect()
            if not self._cancelled:
                self._connection.request(self._method, self._path, self._body, headers)
                response = self._connection.getresponse()
                response.read()
                if response.status >= http.client.BAD_REQUEST:
                    logger.warning("The provider did not end the call: status %d", response.status)
        except (OSError, http.client.HTTPException) as error:
            if not self._cancelled:
                logger.warning("The bot cannot ask the provider to end the call: %s", error)
        finally:
            self._connection.close()

    def cancel(self) -> None:
        """Cancel `send()` on another thread, now or as soon as it starts."""
        self._cancelled = True
        connected = self._connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
