"""Nothing secret of a WebRTC session is shown, and no address of this machine: no log at any level, no error, no repr.

The bot is in this process, and its own library logs on its own thread, `far-loop`: its records are left out.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from rtvi_sync import RTVIClient, RTVIError, RTVIEvent, SmallWebRTCTransport
from tests.support import part_probes
from tests.support.http_server import Answer
from tests.support.slowness import GUARD, LIMITS
from tests.support.waiting import until
from tests.support.webrtc import SESSION, FarLoop, RTCBot, ready_answers, rtc_bot, unreachable

PASSWORD = "canary5f3a"
OFFERS = f"/sessions/{SESSION}/api/offer"


class Eyes:
    """Records the texts of clients that a program and its user may see."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        self._seen: list[str] = []
        self.secrets: set[str] = {PASSWORD, SESSION}
        for addresses in psutil.net_if_addrs().values():
            self.secrets |= {
                each.address.partition("%")[0]
                for each in addresses
                if each.family in (socket.AF_INET, socket.AF_INET6) and each.address not in ("127.0.0.1", "::1")
            }

    def know(self, *descriptions: str) -> None:
        """Learn the names and passwords of ICE, and the fingerprints, in session descriptions."""
        for each in descriptions:
            self.secrets |= set(re.findall(r"(?m)^a=(?:ice-ufrag|ice-pwd|fingerprint):(\S.*?)\r?$", each))

    def look_at(self, *things: object) -> None:
        """Record the texts of objects in a log or a debugger."""
        self._seen += [text for thing in things for text in (repr(thing), str(thing))]

    def look_at_error(self, error: BaseException | None) -> None:
        """Record an error and all that its traceback shows of its causes."""
        while error is not None:
            self.look_at(error, error.args)
            error = error.__cause__ or error.__context__

    @property
    def found(self) -> set[tuple[str, str]]:
        """Each secret that was shown, and the text that contained it."""
        records = [record for record in self._log.records if record.threadName != "far-loop"]
        lines = [f"{r.name}: {r.getMessage()} {r.args!r} {r.exc_text or ''}" for r in records]
        return {(secret, text) for secret in self.secrets for text in [*self._seen, *lines] if secret in text}


@pytest.fixture
def eyes(caplog: pytest.LogCaptureFixture) -> Eyes:
    """Let every logger there is tell everything."""
    caplog.set_level(logging.DEBUG)
    for name in [*logging.root.manager.loggerDict]:
        caplog.set_level(logging.DEBUG, name)
    return Eyes(caplog)


@pytest.fixture
def bot(far_loop: FarLoop) -> Iterator[RTCBot]:
    with rtc_bot(far_loop, ready_answers) as bot:
        yield bot


@pytest.fixture
def silent() -> Iterator[int]:
    """Return a port of UDP at which no socket answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        yield udp.getsockname()[1]


def client_of(eyes: Eyes, **options: Any) -> RTVIClient:
    transport = SmallWebRTCTransport(ice_timeout=options.pop("ice_timeout", GUARD))
    client = RTVIClient(transport=transport, text_only=True, **{"connect_timeout": GUARD, **options})
    for event in RTVIEvent:
        if event is not RTVIEvent.BOT_STARTED:  # it has the server's answer, as it is
            client.on(event, lambda *about: eyes.look_at(*about))
    return client


def look_at_client(eyes: Eyes, client: RTVIClient) -> None:
    transport: Any = client.transport
    eyes.look_at(client, client.params, client.state, client.stats(), client.tracks())
    eyes.look_at(transport, transport.waiting_for(), transport.diagnosis(), transport.options, transport.start_request)
    eyes.look_at(*part_probes.parts_of(client))


def started_with(bot: RTCBot, *urls: str) -> None:
    """Have the start endpoint name TURN servers."""
    servers = [{"urls": [*urls], "username": "ada", "credential": PASSWORD}]
    bot.server.answers["/start"] = Answer({"sessionId": SESSION, "iceConfig": {"iceServers": servers}})  # type: ignore[attr-defined]


def test_a_session(eyes: Eyes, bot: RTCBot) -> None:
    """A session that succeeds and ends shows no secret in its logs, objects and stats."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        refused = nobody.getsockname()[1]
    started_with(bot, f"turn:127.0.0.1:{refused}?transport=tcp")
    client = client_of(eyes)
    client.start_bot_and_connect(f"{bot.url}/start")
    look_at_client(eyes, client)
    bot.call.signal("renegotiate")
    until(lambda: len(bot.call.offers) == 2)
    assert client.send_client_request("echo", 1) == 1
    client.disconnect()
    look_at_client(eyes, client)
    eyes.know(*(offer["sdp"] for offer in bot.call.offers), bot.call.pc.localDescription.sdp)
    assert len(eyes.secrets) > 8
    assert eyes.found == set()


@pytest.mark.parametrize(
    ("step", "limit", "said"),
    [
        ("gathering", "connect_timeout", "the addresses of this machine"),
        ("offer", "connect_timeout", "an answer of http://127.0.0.1:"),
        ("ICE", "connect_timeout", "No network packet"),
        ("ICE", "ice_timeout", "No network packet"),
    ],
)
def test_an_attempt_that_takes_too_long(eyes: Eyes, bot: RTCBot, silent: int, step: str, limit: str, said: str) -> None:
    """The error names the step that hangs, without its address."""
    if step == "gathering":
        started_with(bot, f"turn:127.0.0.1:{silent}")
    bot.change = unreachable
    release = threading.Event()
    if step == "offer":
        bot.server.answers[OFFERS] = lambda _: Answer(release.wait(GUARD))  # type: ignore[attr-defined]
    for seconds in LIMITS:
        client = client_of(eyes, **{limit: seconds})
        with pytest.raises(RTVIError) as caught:
            client.start_bot_and_connect(f"{bot.url}/start")
        if said in str(caught.value):
            break  # else a busy machine has not got that far
    release.set()
    assert said in str(caught.value)
    eyes.look_at_error(caught.value)
    look_at_client(eyes, client)
    eyes.know(*(offer["sdp"] for call in bot.calls for offer in call.offers))
    assert eyes.found == set()


@pytest.mark.parametrize(
    "answer", [Answer({"detail": "no"}, 404), Answer({"sdp": 1}), Answer(b"<p>")], ids=["404", "no sdp", "html"]
)
def test_an_offer_that_fails(eyes: Eyes, bot: RTCBot, answer: Answer) -> None:
    """The URL of the offer is told without the session."""
    bot.server.answers[OFFERS] = answer  # type: ignore[attr-defined]
    client = client_of(eyes)
    with pytest.raises(RTVIError) as caught:
        client.start_bot_and_connect(f"{bot.url}/start")
    eyes.look_at_error(caught.value)
    look_at_client(eyes, client)
    assert f"{bot.url}/sessions/.../api/offer" in str(caught.value)
    assert eyes.found == set()
