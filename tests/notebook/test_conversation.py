"""The conversation of a notebook, with a real bot, outside a notebook."""

from __future__ import annotations

import gc
import io
import re
import subprocess
import sys
import wave
import weakref
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter
from IPython.display import Audio

from rtvi_sync import (
    CloseInfo,
    MemoryTransport,
    MissingExtraError,
    ReconnectPolicy,
    RTVIClient,
    TransportStartError,
    WebSocketTransport,
    signals,
)
from rtvi_sync.media import NullSink, ToneSource
from rtvi_sync.notebook import Conversation
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import bot_says, memory_client
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def talk() -> Iterator[Conversation]:
    """Hold a conversation of two turns, one spoken and one typed."""
    with EmbeddedBot(transcripts="Who is there?", replies=[f"It is {MARKUP}.", "Bye!"], hangover=0.2) as bot:
        client = client_of(bot, mic=ToneSource(440, duration=0.4, sample_rate_hz=16_000))
        talk = Conversation(client)
        with client, client.events("bot-stopped-speaking", timeout=GUARD) as ends:
            next(ends)
            client.send_text("Goodbye")
            next(ends)
        yield talk


def client_of(bot: EmbeddedBot, **options: Any) -> RTVIClient:
    """Return a client of the bot without a speaker."""
    return RTVIClient(transport=WebSocketTransport(bot.ws_url), speaker=NullSink(), connect_timeout=GUARD, **options)


def seconds(audio: tuple[Audio, ...]) -> tuple[int, float]:
    """Return the rate and the seconds of a player's WAV file."""
    (player,) = audio
    with wave.open(io.BytesIO(player.data)) as file:
        return file.getframerate(), file.getnframes() / file.getframerate()


def test_outside_a_notebook_it_is_text(talk: Conversation) -> None:
    """The text has all utterances, and how the session ended."""
    assert repr(talk).splitlines() == [
        "you: Who is there?",
        f"bot: It is {MARKUP}.",
        "you: Goodbye",
        "bot: Bye!",
        "(This client ended the session)",
    ]


def test_each_turn_can_be_played(talk: Conversation) -> None:
    """Spoken turns have the user's audio; the bot's audio has the bot's rate: here an echo, then a tone."""
    spoken, typed = talk.audio.turns
    assert (spoken.number, typed.number) == (1, 2)
    for voice in (spoken.user, spoken.bot, typed.bot):
        rate, length = seconds(voice)
        assert rate == 16_000
        assert length > 0.2  # 0.3 to 0.5 s, plus the pauses that a busy machine adds
    assert (typed.user, typed.user_seconds) == ((), 0)
    assert seconds(typed.bot)[1] == pytest.approx(typed.bot_seconds)
    with wave.open(io.BytesIO(spoken.bot[0].data)) as file:
        assert max(array("h", file.readframes(16_000))) > 10_000


def test_latencies_are_those_of_the_bot(talk: Conversation) -> None:
    """Speech is answered after the bot's hangover time, typed text without a delay."""
    spoken, typed = talk.latency.turns
    assert spoken.transcription is not None
    assert spoken.time_to_first_token is not None
    assert spoken.time_to_first_audio is not None
    assert 0.15 < spoken.transcription <= spoken.time_to_first_token <= spoken.time_to_first_audio
    assert typed.transcription is None
    assert typed.time_to_first_token is not None
    assert typed.time_to_first_audio is not None
    assert 0 < typed.time_to_first_token <= typed.time_to_first_audio < 2


def test_each_name_on_the_page_exists(talk: Conversation) -> None:
    """What the guide writes of a conversation or a turn can be evaluated, and so can each latency that it leads to."""
    guides = ROOT / "docs" / "guides"
    names = re.findall(r"`((?:talk|turn)\b[\w.\[\]()-]*)`", (guides / "notebook.md").read_text("utf-8"))
    assert {"talk", "turn", "talk.latency.turns", "talk.audio.turns[-1]"} <= {*names}
    turn = talk.latency.turns[-1]
    for name in names:
        eval(name, {"talk": talk, "turn": turn})
    table = (guides / "turns.md").read_text("utf-8").partition("## Latencies\n")[2].partition("## ")[0]
    latencies = re.findall(r"(?m)^\| `(\w+)` ", table)
    assert "transcription" in latencies
    assert all(isinstance(getattr(turn, name), float | None) for name in latencies)


def test_a_notebook_gets_html(talk: Conversation) -> None:
    """Tables with players and milliseconds, as IPython's own formatters see them, and a player for each single turn."""
    formats = DisplayFormatter()
    voices, latency, turn = (
        formats.format(each)[0]["text/html"] for each in (talk.audio, talk.latency, talk.audio.turns[0])
    )
    assert (voices.count("<audio"), turn.count("<audio")) == (3, 2)
    assert latency.count("<tr>") == 5
    assert "<th>first audio</th>" in latency
    assert str(round(1000 * (talk.latency.turns[0].time_to_first_audio or 0))) in latency


def test_tables_are_text_too(talk: Conversation) -> None:
    """Terminals and logs get aligned columns."""
    assert [line.split()[0] for line in repr(talk.audio).splitlines()] == ["turn", "1", "2"]
    assert repr(talk.latency).splitlines()[-1].startswith("median")


def test_an_empty_conversation() -> None:
    """Before the first word all parts exist, and are empty."""
    client = RTVIClient(transport=WebSocketTransport("ws://127.0.0.1:1"))
    talk = Conversation(client)
    assert repr(talk) == "(disconnected)"
    assert (talk.audio.turns, talk.latency.turns) == ((), ())
    assert "<table>" in talk.audio._repr_html_() + talk.latency._repr_html_()


def test_it_may_be_created_while_connected_and_shows_errors() -> None:
    """A conversation that is created while connected shows later turns, the bot's errors and the reason of the end."""
    with EmbeddedBot() as bot, client_of(bot, enable_mic=False) as client:
        talk = Conversation(client)
        session = bot.wait_for_session()
        with client.events("bot-stopped-speaking", "server-message", timeout=GUARD) as events:
            client.send_text("Hi")
            next(events)
            session.send({"label": "rtvi-ai", "type": "error", "data": {"error": "\x1b[2Jno tea", "fatal": False}})
            session.send({"label": "rtvi-ai", "type": "server-message", "data": {}})
            next(events)
        assert repr(talk).splitlines()[-1] == "(The bot reports an error:  [2Jno tea)"
        with client.events("disconnected", timeout=GUARD) as ends:
            session.close(1011, f"\x1b[31m{MARKUP}")
            next(ends)
        client.disconnect()  # returns when all handlers have
        assert [turn.bot_seconds > 0 for turn in talk.audio.turns] == [True]
        assert [turn.bot for turn in Conversation(client, keep=0.01).audio.turns] == [()]
    lines = repr(talk).splitlines()
    assert lines[:2] == ["you: Hi", "bot: You said: Hi"]
    assert MARKUP in lines[2]
    assert "1011" in lines[2]
    assert "\x1b" not in lines[2]


def test_what_the_bot_says_first_has_no_number() -> None:
    """The user's turns are numbered from 1. Words left unspoken by an interruption stay with their turn."""
    client = memory_client(enable_mic=False)
    talk = Conversation(client)
    with client:
        bot_says(client, "bot-llm-started")
        bot_says(client, "bot-llm-text", {"text": "Welcome!"})
        client.send_text("Stop")
        bot_says(client, "bot-interrupted")
        bot_says(client, "bot-transcription", {"text": "Welcome!"})
    assert [turn.number for turn in talk.audio.turns] == [None, 1]
    assert (len(talk.latency.turns), talk.latency.first) == (1, 1)
    assert repr(talk).splitlines()[:-1] == ["bot: Welcome!", "you: Stop"]


def test_a_reconnected_session_continues_the_transcript() -> None:
    """The status says that the client reconnects, and why it stops trying."""
    transport = MemoryTransport()
    policy = ReconnectPolicy(max_attempts=2, initial_delay=0.01)
    client = RTVIClient(transport=transport, reconnect=policy)
    talk = Conversation(client)
    told: list[str] = []

    def listen(_client: object, _event: object) -> None:
        told.append(repr(talk))

    for signal in (signals.reconnecting, signals.reconnect_failed):
        signal.connect(listen, sender=client)
    client.connect()
    with client.events("bot-ready", timeout=GUARD) as events:
        transport.end(CloseInfo(initiator="network"))
        next(events)
    with client.events("reconnect-failed", timeout=GUARD) as failures:
        transport.connect = refuse  # type: ignore[method-assign]
        transport.end(CloseInfo(initiator="network"))
        next(failures)
    assert re.search(r"lost.*: the client reconnects by itself, attempt 1 of 2", told[0])
    assert re.fullmatch(r"\(Reconnecting has failed: .*no more.*\)", told[-1])


def refuse(*_: Any, **__: Any) -> None:
    """Replace a transport's `connect()`."""
    raise TransportStartError("no more")


def test_it_lives_as_long_as_its_client_and_does_not_keep_it() -> None:
    """Without a variable it still follows; with one, the client is still collected."""
    client = RTVIClient(transport=WebSocketTransport("ws://127.0.0.1:1"))
    gone = weakref.ref(Conversation(client))
    gc.collect()
    assert gone() is not None
    del client
    gc.collect()
    assert gone() is None

    client = RTVIClient(transport=WebSocketTransport("ws://127.0.0.1:1"))
    talk, lost = Conversation(client), weakref.ref(client)
    del client
    assert lost() is None
    assert repr(talk) == "(disconnected)"


def test_without_ipython_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra and the command that installs it."""
    for name in ("IPython", "IPython.display"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"install .*\[notebook\]"):
        Conversation(RTVIClient(transport=WebSocketTransport("ws://127.0.0.1:1")))


def test_importing_loads_no_ipython() -> None:
    """Importing rtvi_sync.notebook does not load IPython, so that applications without a notebook load nothing."""
    script = "import sys, rtvi_sync.notebook; sys.exit('IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=GUARD).returncode == 0
