"""The dialect of each generation of bots with a client of each: the basis of the package's own announcement."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipecat.conftest import BotServer
from tests.pipecat.raw_client import RawClient

NOT_COMPATIBLE = "RTVI version {} is not compatible with server protocol 2.2.0. Compatibility issues may occur."
INVALID = "Invalid client version format ({}). Compatibility issues may occur."


def shake_hands(server: BotServer, version: str | None) -> tuple[list[str], dict[str, Any]]:
    """Shake hands; return a bot's remark on a client's version, and its bot-ready."""
    data = {} if version is None else {"version": version, "about": {"library": "raw client"}}
    with RawClient(server.ws_url) as client:
        client.send("client-ready", data, "ready")
        ready = client.until_type("bot-ready")
        remarks = client.messages("error-response")
    assert all(message["id"] == "ready" for message in (*remarks, ready))
    return [remark["data"]["error"] for remark in remarks], ready["data"]


@pytest.mark.parametrize(
    ("announced", "remarks", "answered"),
    [
        ("2.2.0", [], "2.2.0"),
        ("2.0.0", [], "2.2.0"),
        ("1.4.0", [], "1.4.0"),
        ("1.0.0", [], "1.0.0"),
        ("0.3.0", [NOT_COMPATIBLE.format("0.3.0")], "2.2.0"),
        ("3.0.0", [NOT_COMPATIBLE.format("3.0.0")], "2.2.0"),
        ("2.1", [INVALID.format("2.1")], "2.2.0"),
        ("abc", [INVALID.format("abc")], "2.2.0"),
        (None, ["Client version unknown. Compatibility issues may occur."], "2.2.0"),
    ],
)
def test_rtvi_2(pipecat_showcase: BotServer, announced: str | None, remarks: list[str], answered: str) -> None:
    """A bot of RTVI 2 speaks its own version, or a client's 1.x; to all others it remarks on theirs, and goes on."""
    remarked, ready = shake_hands(pipecat_showcase, announced)
    assert (remarked, ready["version"]) == (remarks, answered)


@pytest.mark.parametrize("announced", ["2.2.0", "1.2.0", "0.3.0", "abc", None])
def test_rtvi_1(pipecat_configured_1_2: BotServer, announced: str | None) -> None:
    """A bot of RTVI 1.2 speaks its own version with all, remarks on none, and tells no config by itself."""
    remarks, ready = shake_hands(pipecat_configured_1_2, announced)
    about = {"library": "pipecat-ai", "library_version": "0.0.108"}
    assert (remarks, ready) == ([], {"version": "1.2.0", "about": about})


@pytest.mark.parametrize("announced", ["2.2.0", "0.3.0", None])
def test_rtvi_0(pipecat_configured_0_3: BotServer, announced: str | None) -> None:
    """A bot of RTVI 0.3 does not look at the client's version, and tells its config."""
    remarks, ready = shake_hands(pipecat_configured_0_3, announced)
    assert (remarks, ready["version"]) == ([], "0.3.0")
    assert [service["service"] for service in ready["config"]] == ["vad", "tts", "llm"]


def test_output_for_a_client_of_rtvi_1(pipecat_showcase: BotServer) -> None:
    """A bot of RTVI 2 sends a client of 1.x each word it speaks, and no progress, raw texts or backchannels."""
    with RawClient(pipecat_showcase.ws_url) as client:
        client.send("client-ready", {"version": "1.4.0", "about": {"library": "raw client"}}, "ready")
        client.until_type("bot-ready")
        client.send("send-text", {"content": "Hello"}, "text")
        client.until_type("bot-stopped-speaking")
        outputs = [message["data"] for message in client.messages("bot-output")]
        assert client.messages("llm-raw-text", "tts-raw-text") == []
    assert [(o["text"], o["aggregated_by"], o["spoken"]) for o in outputs] == [
        ("You said: Hello.", "sentence", False),
        *((word, "word", True) for word in ("You", "said:", "Hello.")),
    ]
