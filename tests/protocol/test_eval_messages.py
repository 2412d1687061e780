"""The messages of the eval route: audio in JSON, both ways."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from rtvi_sync.errors import ProtocolError
from rtvi_sync.protocol import envelope
from rtvi_sync.protocol.eval_messages import BotAudioReader, control_message, encode_audio, may_be_bot_audio

pytestmark = pytest.mark.inside

PCM = bytes(range(256)) * 5


def bot_audio(pcm: bytes, rate: Any = 24000, **more: Any) -> bytes:
    """Return the text as Pipecat's bots write it."""
    data = {"audio": base64.b64encode(pcm).decode(), "sampleRate": rate}
    return json.dumps({"label": "rtvi-ai", "type": "eval-bot-audio", "data": data, **more}).encode()


def message(data: Any, type: str = "eval-bot-audio") -> bytes:
    return json.dumps({"label": "rtvi-ai", "type": type, "data": data}).encode()


def test_the_users_audio() -> None:
    """The user's audio is a `raw-audio` message with its samples in base64, its rate and its channels."""
    for size, rate in ((0, 16000), (640, 16000), (1, 8000), (1280, 48000)):
        sent = json.loads(encode_audio(PCM[:size], rate))
        assert (sent["label"], sent["type"], isinstance(sent["id"], str)) == ("rtvi-ai", "raw-audio", True)
        assert base64.b64decode(sent["data"].pop("base64Audio"), validate=True) == PCM[:size]
        assert sent["data"] == {"sampleRate": rate, "numChannels": 1}


def test_a_control_message() -> None:
    """A control message is a client message whose id is its type, as in Pipecat's own harness."""
    assert json.loads(envelope.encode(control_message("eval-context", {"messages": []}))) == {
        "label": "rtvi-ai",
        "type": "client-message",
        "id": "eval-context",
        "data": {"t": "eval-context", "d": {"messages": []}},
    }


def test_the_bots_audio() -> None:
    """Each message is read, the first by its JSON and the next ones by their form, whatever the rate and the size."""
    reader, rng = BotAudioReader(), random.Random(1)
    for _ in range(50):
        pcm, rate = rng.randbytes(rng.choice((0, 1, 2, 3, 1920))), rng.choice((8000, 24000, 24000))
        text = bot_audio(pcm, rate)
        assert may_be_bot_audio(text)
        assert reader.read(text) == (pcm, rate)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " :\t")])
@pytest.mark.parametrize("escaped", [False, True])
def test_any_way_to_write_json(separators: tuple[str, str], escaped: bool) -> None:
    """Order, white space and escapes do not matter."""
    reader = BotAudioReader()
    for pcm in (PCM, PCM[::-1], b"\xff\xef\xbf" * 5):
        data = {"sampleRate": 16000, "audio": base64.b64encode(pcm).decode(), "more": [1]}
        text = json.dumps({"data": data, "type": "eval-bot-audio", "label": "rtvi-ai"}, separators=separators)
        assert reader.read((text.replace("/", "\\/") if escaped else text).encode()) == (pcm, 16000)


@pytest.mark.parametrize(
    "text",
    [
        message({"text": 'Say "eval-bot-audio"'}, "bot-llm-text"),
        b'{"label": "another", "type": "eval-bot-audio", "data": {"audio": "AAAA", "sampleRate": 8000}}',
        b'"eval-bot-audio"',
        b"eval-bot-audio",
        b'{"label": "rtvi-ai", "type": "eval-bot-audio"',
        b'{"label": "rtvi-ai", "type": "eval-bot-audio", "data": ' + b"[" * 500 + b"]" * 500 + b"}",
    ],
    ids=range(6),
)
def test_other_messages(text: bytes) -> None:
    """Data that is no audio message, or no message at all, is left to the event layer, which reports it."""
    reader = BotAudioReader()
    assert may_be_bot_audio(text)
    for _ in range(2):
        assert reader.read(text) is None
        assert reader.read(bot_audio(PCM)) == (PCM, 24000)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "AAAA",
        {},
        {"audio": "AAAA"},
        {"sampleRate": 24000},
        {"audio": 5, "sampleRate": 24000},
        {"audio": None, "sampleRate": 24000},
        {"audio": ["AAAA"], "sampleRate": 24000},
        *({"audio": "AAAA", "sampleRate": rate} for rate in (None, True, "24000", 24000.0, [24000])),
        *(
            {"audio": audio, "sampleRate": 24000}
            for audio in ("A", "AAA", "AA=A", "AAAA\n", "AA-_", "ä", "\ud800", "=A")  # "=" is b"" for Python 3.10
        ),
    ],
    ids=range(22),
)
def test_audio_that_is_none(data: Any) -> None:
    """Samples that are not base64, and values of other types, are an error, before and after valid audio."""
    reader = BotAudioReader()
    for _ in range(2):
        with pytest.raises(ProtocolError, match="eval-bot-audio"):
            reader.read(message(data))
        assert reader.read(bot_audio(PCM)) == (PCM, 24000)


def test_the_form_is_not_mistaken() -> None:
    """The samples are read from the member `audio`, even if another member or a key has the same text."""
    reader = BotAudioReader()
    for other in ("AAAA", "BBBB"):
        data = f'{{"x":"{other}","\\u0061udio":"AA\\u0041A","{other}":1,"sampleRate":8000,"y":"AAAA"}}'
        text = f'{{"label":"rtvi-ai","type":"eval-bot-audio","data":{data}}}'.encode()
        assert reader.read(text) == (b"\0\0\0", 8000)
    for samples in ("AAAA", "BBBB"):
        data = f'{{"audio":"{samples}","sampleRate":8000}}'
        text = f'{{"label":"rtvi-ai","type":"eval-bot-audio","id":"AAAA","data":{data}}}'.encode()
        assert reader.read(text) == (base64.b64decode(samples), 8000)


def test_an_escape_that_ends_the_string() -> None:
    """A quote in the place of the samples cannot smuggle another rate in: the message is parsed."""
    reader = BotAudioReader()
    reader.read(bot_audio(PCM, 24000))
    head, tail = bot_audio(b"\0\0\0", 24000).split(b"AAAA")
    assert reader.read(head + b'AAAA", "audio": "BBBB' + tail) == (base64.b64decode("BBBB"), 24000)
