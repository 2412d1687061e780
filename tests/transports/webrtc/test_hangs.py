"""A connection that hangs while it opens: the limit holds in every step, giving up leaves nothing, the error helps."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from rtvi_sync import (
    ConnectionTimeoutError,
    DisconnectedError,
    RTVIClient,
    SmallWebRTCTransport,
    TransportStartError,
    TransportState,
)
from tests.support import part_probes
from tests.support.hung_webrtc import STEPS, Hung, Step, hung_look_ups
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread, own_threads
from tests.support.waiting import until
from tests.support.webrtc import FarLoop, RTCBot, ready_answers, rtc_bot

# Seconds: an attempt has the first one that lets it reach the step under test on this machine.
LIMITS = (0.3, 1.5, 4.5)
# How much longer than its limit the end of an attempt may take on an idle machine, in seconds.
TOLERANCE = 0.1
# The limit of `disconnect()`, which starts two threads; it takes 0.03 s.
AT_ONCE = 0.2


@pytest.fixture
def bot(far_loop: FarLoop) -> Iterator[RTCBot]:
    with rtc_bot(far_loop, ready_answers) as bot:
        yield bot


@pytest.fixture(params=STEPS.values(), ids=[*STEPS])
def hung(request: pytest.FixtureRequest, bot: RTCBot) -> Iterator[Hung]:
    """Return the part that hangs in a step of `connect()`."""
    step: Step = request.param
    with step(bot) as hung, hung_look_ups():
        yield hung


@pytest.fixture
def loop() -> Iterator[Any]:
    """Return the process's loop while another session holds it, too: its end would end the leftovers of an attempt."""
    with part_probes.held_loop() as loop:
        yield loop


def client_of(**options: Any) -> RTVIClient:
    transport = SmallWebRTCTransport(ice_timeout=options.pop("ice_timeout", None))
    return RTVIClient(transport=transport, **{"connect_timeout": None, "text_only": True, **options})


@pytest.fixture(scope="module", autouse=True)
def _ready(far_loop: FarLoop) -> None:
    """Connect once, because the first session imports aiortc, which keeps all other threads waiting."""
    with rtc_bot(far_loop, ready_answers) as bot:
        client = client_of(connect_timeout=GUARD)
        client.connect({"webrtc_url": f"{bot.url}/api/offer"})
        client.disconnect()


def is_at(client: RTVIClient, hung: Hung) -> bool:
    if hung.is_ready_phase:
        return client.state is TransportState.CONNECTED
    return client.transport is not None and client.transport.waiting_for().startswith(hung.step)


def check_nothing_is_left(client: RTVIClient, bot: RTCBot, loop: Any) -> None:
    """Check that tasks and sockets are gone at once, and threads, but for look-ups; and that it connects then."""
    with takes(AT_ONCE):
        until(lambda: part_probes.left_on_loop(loop) == (0, 0), timeout=5.0)
    until(lambda: {name.split("-")[1] for name in own_threads()} <= {"loop", "blocking"})
    bot.change, bot.spoil, bot.answer = lambda answer: answer, lambda _: None, ready_answers
    part_probes.set_connect_limit(client, GUARD)
    client.connect({"webrtc_url": f"{bot.url}/api/offer"})
    assert client.send_client_request("echo", 1, timeout=GUARD) == 1
    client.disconnect()


def test_the_limit(bot: RTCBot, hung: Hung, loop: Any) -> None:
    """`connect_timeout` ends the attempt in time; the error names the step and the remedy."""
    for limit in LIMITS:
        client = client_of(connect_timeout=limit)
        with takes(limit + TOLERANCE, at_least=limit), pytest.raises(ConnectionTimeoutError) as caught:
            client.connect(hung.bundle)
        if hung.step in str(caught.value) and (caught.value.phase == "bot-ready") is hung.is_ready_phase:
            break
    assert hung.step in str(caught.value)
    assert hung.cure in str(caught.value)
    assert caught.value.phase == ("bot-ready" if hung.is_ready_phase else "transport")
    check_nothing_is_left(client, bot, loop)


def test_giving_up(bot: RTCBot, hung: Hung, loop: Any) -> None:
    """`disconnect()` ends the attempt at once."""
    client = client_of()
    connecting = InThread(lambda: client.connect(hung.bundle))
    until(lambda: is_at(client, hung))
    with takes(AT_ONCE):
        client.disconnect()
        error = connecting.error()
    assert isinstance(error, DisconnectedError)
    assert error.initiator == "client"
    check_nothing_is_left(client, bot, loop)


@pytest.mark.parametrize("step", [STEPS["ice"], STEPS["dtls"], STEPS["sctp"]])
def test_the_limit_of_a_bot_that_has_answered(bot: RTCBot, step: Step, loop: Any) -> None:
    """`ice_timeout` ends attempts that aiortc would continue for a minute."""
    with step(bot) as hung:
        for limit in LIMITS:
            client = client_of(ice_timeout=limit)
            with pytest.raises(TransportStartError, match=r"not open within .* \(ice_timeout\)") as caught:
                client.connect(hung.bundle)
            if hung.cure in str(caught.value):
                break
    assert hung.cure in str(caught.value)
    check_nothing_is_left(client, bot, loop)


def test_a_wrong_password_of_ice(bot: RTCBot, loop: Any) -> None:
    """A wrong ICE password has the error of a firewall, because no packet arrives."""
    bot.change = lambda answer: {**answer, "sdp": answer["sdp"].replace("a=ice-pwd:", "a=ice-pwd:x")}
    client = client_of(ice_timeout=LIMITS[0], connect_timeout=GUARD)
    with pytest.raises(TransportStartError, match=r"No network packet came from the bot .* or use WebSocket"):
        client.connect({"webrtc_url": f"{bot.url}/api/offer"})
    check_nothing_is_left(client, bot, loop)


# -- the process ------------------------------------------------------------------------------------------------------

PROGRAM = """
import contextlib, json, sys, threading
import aiortc  # its import takes as long as all the rest
from rtvi_sync import RTVIClient, RTVIError, SmallWebRTCTransport
from tests.support.hung_webrtc import Hung, hung_look_ups
from tests.transports.webrtc.test_hangs import is_at
look_ups = hung_look_ups()
look_ups.__enter__()
hung = Hung(**json.loads(sys.argv[1]))
client = RTVIClient(transport=SmallWebRTCTransport(ice_timeout=None), text_only=True, connect_timeout=100)
def tell():
    while not is_at(client, hung):
        threading.Event().wait(0.005)
    print("now", flush=True)
"""
IN_MAIN = """
threading.Thread(target=tell, daemon=True).start()
client.connect(hung.bundle)
"""
IN_THREAD = """
def connect():
    with contextlib.suppress(RTVIError):  # the exit ends the attempt
        client.connect(hung.bundle)
threading.Thread(target=connect, daemon=True).start()
tell()
"""


@pytest.fixture
def start(hung: Hung) -> Callable[[str], subprocess.Popen[str]]:
    """Return a function that runs a program until it hangs."""

    def start(how: str) -> subprocess.Popen[str]:
        asked = json.dumps(attrs.asdict(hung))
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", PROGRAM + how, asked], stdout=pipe, stderr=pipe, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        return process

    return start


@pytest.mark.matrix
def test_exit_while_it_connects(start: Callable[[str], subprocess.Popen[str]]) -> None:
    """The interpreter's exit waits for nothing that hangs."""
    process = start(IN_THREAD)
    with takes(at_most=5.0):
        _, errors = process.communicate(timeout=GUARD)
    assert (process.returncode, errors) == (0, "")


IN_CI = ("offer", "ice")


@pytest.mark.parametrize(
    "hung",
    [pytest.param(step, id=name, marks=() if name in IN_CI else pytest.mark.matrix) for name, step in STEPS.items()],
    indirect=True,
)
def test_ctrl_c_while_it_connects(start: Callable[[str], subprocess.Popen[str]]) -> None:
    """Ctrl-C raises KeyboardInterrupt out of a connect() that hangs, and the process ends."""
    process = start(IN_MAIN)
    with takes(at_most=5.0):
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=GUARD)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    # 1 if another thread evaluates a text at the same time, which makes CPython forget the reason of the end.
    assert process.returncode in (-signal.SIGINT, 1)
