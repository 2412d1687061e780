"""The way to a bot, as the doctor sees it where it is open."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.doctor import Examined, nothing
from tests.support.loopback import Peer, Server, authority, black_hole, serving
from tests.support.slowness import GUARD
from tests.support.talk_command import environment


def test_what_needs_a_failed_check_is_skipped(doctor: Callable[..., Examined]) -> None:
    """After a failure, each check that needs the failed one is skipped, and says so; the others run."""
    with nothing() as url:
        examined = doctor(url)
    statuses = {name: (check["status"], check["finding"]) for name, check in examined.checks.items()}
    assert statuses.pop("port")[0] == "fail"
    assert statuses.pop("local")[0] == "ok"
    assert {*statuses.values()} == {("skipped", "needs port")}


def test_ports_that_do_not_answer(doctor: Callable[..., Examined]) -> None:
    """A name that is not known and a port that drops packets are findings of their own."""
    check = doctor("http://no-such-host.invalid").checks["port"]
    assert (check["status"], check["finding"].partition(":")[0]) == ("fail", "no-such-host.invalid is not known")
    with black_hole() as port:
        check = doctor(f"ws://127.0.0.1:{port}/ws").checks["port"]
    assert (check["status"], check["finding"]) == ("fail", f"127.0.0.1:{port} does not answer")
    assert "firewall" in check["cure"]


def test_a_proxy_that_is_down(doctor: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment that cannot be used is named, with its variable."""
    with nothing() as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        check = doctor("http://bot.example").checks["port"]
    assert "http_proxy in the environment" in check["finding"]
    assert "NO_PROXY" in check["cure"]


@pytest.mark.parametrize("scheme", ["https", "wss"])
def test_a_proxy_for_tls(scheme: str, doctor: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that only the proxy of the variable for TLS knows is looked for through that proxy."""
    asked: list[str] = []

    def refuse(peer: Peer) -> None:
        asked.append(peer.read_head().partition(" HTTP/")[0])
        peer.answer("403 Forbidden")

    with Server(refuse) as proxy:
        monkeypatch.setenv("https_proxy", f"http://ada:canary81c2@{proxy.authority}")
        check = doctor(f"{scheme}://bot.invalid/ws").checks["port"]
    assert asked == ["CONNECT bot.invalid:443"]
    assert "https_proxy in the environment" in check["finding"]
    assert "canary81c2" not in check["finding"] + check["cure"]


def test_the_eval_route_and_a_typed_url(doctor: Callable[..., Examined]) -> None:
    """A bot that is reached by the eval route alone is all right, and a URL of a WebSocket needs no start request."""

    def hang_up(session: BotSession, _message: dict[str, Any]) -> bool:
        if session.eval_route is None:
            session.close()
        return session.eval_route is None

    with EmbeddedBot(handler=hang_up, greeting="Good day.") as bot:
        examined = doctor(bot.ws_url)
    assert (examined.status, examined.first) == (0, "")
    assert [examined.checks[name]["status"] for name in ("http", "eval")] == ["skipped", "ok"]
    assert examined.checks["entry"]["finding"] == "the bot is reached by eval"


def test_a_certificate(tmp_path: Path) -> None:
    """A certificate that is trusted is told with the days that are left of it."""
    authority().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with EmbeddedBot(greeting="Good day.", ssl_context=serving()) as bot:
        done = subprocess.run(
            [sys.executable, "-m", "rtvi_sync", "doctor", bot.base_url, "--json"],
            env=environment() | {"SSL_CERT_FILE": str(tmp_path / "ca.pem")},
            stdout=subprocess.PIPE,
            timeout=GUARD,
        )
    checks = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, checks["tls"]["status"]) == (0, "ok")
    assert "the certificate of 127.0.0.1 is valid for" in checks["tls"]["finding"]
