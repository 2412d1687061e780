"""The embedded bot behind a telephone provider: calls, their messages, and the request by which a bot hangs up."""

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
    """A telephone call, as the bot knows it. Any thread may read it.

    Attributes:
        provider: "twilio", "telnyx", "plivo" or "exotel".
        call_id, stream_id: made by the provider.
        from_number, to_number: of the caller and of the bot; None: the provider has not told.
        parameters: of the application that calls, by name.
        dtmf: the keys that the caller has pressed so far, such as "12#".
        marks: the names of the bot's marks that were played so far, in the order in which the provider told it.
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
    """Return a call in which nothing has happened yet."""
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
        call: as the provider has told of it.
    """

    def __init__(self, call: PhoneCall) -> None:
        self.call: Final = call
        self._provider = PROVIDERS[call.provider]

    def encode(self, frame: Frame) -> str | None:
        """Return the text that is sent for a frame: audio, or `clear` for an interruption. RTVI messages are not."""
        if isinstance(frame, InterruptionFrame):
            return self._provider.bot_clear(self.call).decode()
        if not isinstance(frame, AudioRawFrame):
            return None
        payload = _ENCODERS[self._provider.bot_codec](_for_telephone(frame))
        return self._provider.bot_audio(self.call, payload).decode() if payload else None

    def mark(self, name: str) -> str:
        """Return the text by which the bot asks when what it has sent is played."""
        return self._provider.bot_mark(self.call, name).decode()

    def decode(self, data: bytes | str) -> AudioRawFrame | PlaybackMark | KeyPress | CallEnd | None:
        """Return what a message of the provider says; None: nothing, as all binary ones.

        Raises:
            ProtocolError: the text is no message of a provider.
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
    # Each frame on its own, because several threads may send, and linear, so that calls sound alike on every machine.
    resampler = LinearResampler(frame.sample_rate, RATE_HZ)
    return resampler.convert(pcm) + resampler.finish()


def may_open_call(text: str) -> bool:
    """Return whether the first message of a WebSocket is like a provider's, so that the second one may tell of a call.

    Bots of Pipecat read two messages before they know, and leave one that sends a single message waiting.
    """
    received = parse(text)
    return isinstance(received, dict) and isinstance(received.get("event"), str)


# -- hanging up -------------------------------------------------------------------------------------------------------

#: Method and path of the request that ends a call, with the names of their parts. Exotel's bots make none.
HANG_UP_REQUESTS: Final[Mapping[ProviderName, tuple[str, str]]] = {
    "twilio": ("POST", "/2010-04-01/Accounts/{account}/Calls/{call_id}.json"),
    "telnyx": ("POST", "/v2/calls/{call_id}/actions/hangup"),
    "plivo": ("DELETE", "/v1/Account/{account}/Call/{call_id}/"),
}
#: What the request of Twilio says; that path has other uses.
_BODIES: Final[Mapping[ProviderName, bytes]] = {"twilio": b"Status=completed"}
_ACCOUNT: Final = "embedded-bot"


class HangUpRequest:
    """The request by which the bot has the provider end a call.

    Args:
        call: the call; one of a provider in `HANG_UP_REQUESTS`.
        url: of the HTTP server that takes the request.
    """

    def __init__(self, call: PhoneCall, url: str) -> None:
        server = urlsplit(url)
        self._method, path = HANG_UP_REQUESTS[call.provider]
        self._path = path.format(account=_ACCOUNT, call_id=quote(call.call_id, safe=""))
        self._body = _BODIES.get(call.provider)
        self._connection = http.client.HTTPConnection(server.hostname or "", server.port)
        self._cancelled = False

    def send(self) -> None:
        """Send the request, and block until it is answered or cancelled, without a limit, as bots of Pipecat do.

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
        """End `send()` on another thread, now or when it begins."""
        self._cancelled = True
        connected = self._connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
