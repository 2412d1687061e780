"""Calls to real bots by the media streams of telephone providers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from rtvi_sync import DisconnectedError, RTVIClient, RTVIError, TelephonyTransport, UnsupportedFeatureError, connect
from tests.support.slowness import GUARD
from tests.support.wavs import tone, write_wav

from .conftest import BotServer, Shared

Provider = Literal["twilio", "telnyx", "plivo", "exotel"]
PROVIDERS: list[Provider] = ["twilio", "telnyx", "plivo", "exotel"]
# A provider's messages differ in no version; of the older ones one provider is called in each run.
CALLS = [
    *(pytest.param("scripted-2.2", provider) for provider in PROVIDERS),
    *(
        pytest.param(kind, provider, marks=[] if (kind, provider) == ("scripted-1.2", "twilio") else pytest.mark.matrix)
        for kind in ("scripted-2.0", "scripted-1.2")
        for provider in PROVIDERS
    ),
]
# Pipecat's converter from 24 to 8 kHz keeps back the end of the speech: up to 0.12 s.
SPOKEN = pytest.approx(0.75, abs=0.1)
Call = Callable[..., AbstractContextManager[RTVIClient]]


@pytest.fixture
def call(shared_bots: Shared) -> Call:
    """Return a function that calls the bot of a kind, by a provider, for which a script may have more."""

    @contextmanager
    def call(kind: str, provider: Provider, script: dict[str, Any] | None = None, **options: Any) -> Iterator[Any]:
        bot: BotServer = shared_bots.server(kind)
        bot.follow(script or {})
        transport = TelephonyTransport(provider, bot.ws_url.replace("/ws", "/call"), **options)
        with RTVIClient(transport=transport, mic=False, speaker=False, connect_timeout=GUARD) as client:
            yield client
        assert bot.live_sessions(expected=0) == 0

    return call


@pytest.fixture
def question(tmp_path: Path) -> Path:
    """Return a question of 0.6 s."""
    return write_wav(tmp_path / "question.wav", [tone(0.6)])


@pytest.mark.parametrize(("kind", "provider"), CALLS)
def test_a_conversation(call: Call, question: Path, kind: str, provider: Provider) -> None:
    """Two questions are answered; the words of neither side are known, and all that is heard is."""
    with call(kind, provider, from_number="+15550100", parameters={"plan": "gold"}) as client:
        for _ in range(2):
            turn = client.ask(question, GUARD)
            assert (turn.status, turn.modality, turn.initiator) == ("complete", "audio", "user")
            assert turn.audio.seconds == SPOKEN
            assert turn.voice_to_voice is not None
            assert (turn.user_text, turn.bot_text, turn.spoken_text, turn.function_calls) == (None, None, None, ())
        with pytest.raises(UnsupportedFeatureError):
            client.ask("Hello?")
        client.send_dtmf("1#")
        assert len(client.turns()) == 2


def test_an_interruption(call: Call, question: Path) -> None:
    """The caller cuts the bot short, and hears no more of the audio sent before."""
    story = {"hello bot": [["write", " ".join(["word"] * 30)]]}
    with call("scripted-2.2", "twilio", {"replies": story}) as client:
        second = client.barge_in(question, delay=0.5)
        first = client.ask(question, GUARD)
        assert first.status == "interrupted"
        assert 0.4 < first.audio.seconds < 2.0
        client.send_dtmf("0")
    with pytest.raises(DisconnectedError):
        second.result(GUARD)


def test_a_greeting(call: Call) -> None:
    """The bot speaks first, as soon as it has the call."""
    with call("scripted-2.2", "plivo", {"greets": [["speak", "Welcome to the shop."]]}) as client:
        greeting = client.listen(GUARD)
        assert (greeting.initiator, greeting.status) == ("bot", "complete")
        assert greeting.audio.seconds == SPOKEN


def test_a_bot_that_hangs_up(call: Call, shared_bots: Shared) -> None:
    """The caller hears all of the bot's words before it hangs up."""
    with (
        call("scripted-2.2", "exotel", {"greets": [["speak", "Goodbye and thank you."]]}) as client,
        client.events("turn_ended", "disconnected", timeout=GUARD) as events,
    ):
        assert shared_bots.running("scripted-2.2").control("end") == 1
        ended, disconnected = next(events), next(events)
        assert ended.data.audio.seconds >= 0.65  # Pipecat sends some silence behind it
        assert (disconnected.data.initiator, disconnected.data.code) == ("server", 1000)


def test_the_runner(pipecat_process: Callable[..., BotServer], question: Path) -> None:
    """Pipecat's runner gives a token for a call, and tells nothing of a provider that the bot has no entry for."""
    bot = pipecat_process("stock", "--entries", "twilio", "--ws-auth", "token")
    with connect(bot.base_url, transport="twilio", mic=False, speaker=False, connect_timeout=GUARD) as client:
        assert client.ask(question, GUARD).status == "complete"
    with pytest.raises(RTVIError, match="needs the entry 'telnyx' in its transport_params, and TELNYX_API_KEY"):
        connect(bot.base_url, transport="telnyx", mic=False, speaker=False, connect_timeout=GUARD)


DOORS = """
from pathlib import Path
import pytest

DOORS = {"websocket": "hello bot", "webrtc": Path("question.wav"), "twilio": Path("question.wav")}

@pytest.mark.parametrize("door", DOORS)
def test_it(rtvi_connect, door):
    turn = rtvi_connect(transport=door).ask(DOORS[door])
    turn.expect(first_audio=30)
    assert turn.audio.seconds > 0.5
"""


def test_one_scenario_by_each_door(pipecat_process: Callable[..., BotServer], question: Path, tmp_path: Path) -> None:
    """Text, browser and telephone reach one bot in one test; the summary has their latencies side by side."""
    bot = pipecat_process("stock", "--entries", "websocket,webrtc,twilio")
    (tmp_path / "test_doors.py").write_text(DOORS)
    assert question.parent == tmp_path
    plugin = ("-p", "rtvi_sync.testing.pytest_plugin", "-p", "no:cacheprovider", "--rtvi-url", bot.base_url)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "-W", "error", "test_doors.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=4 * GUARD,
    )
    assert done.returncode == 0, done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("rtvi: ")]
    assert {row[1]: len(row) for row in rows[-3:]} == {"websocket": 5, "webrtc": 7, "twilio": 7}
