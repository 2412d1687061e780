"""A transport that carries no messages, as by telephone: sending one raises, and the session continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from rtvi_sync import FunctionCall, ReconnectPolicy, RTVIClient, RTVIMessage, UnsupportedFeatureError
from tests.support.by_ear import QUESTION, EarTransport, ear_client
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until

SENDS: dict[str, Callable[[RTVIClient, Path], object]] = {
    "message": lambda client, _: client.send_message(RTVIMessage("my-own", {})),
    "client message": lambda client, _: client.send_client_message("x"),
    "request": lambda client, _: client.send_client_request("x"),
    "text": lambda client, _: client.send_text("Hello"),
    "file": lambda client, folder: client.send_file(folder / "none.png"),
    "context": lambda client, _: client.append_to_context("user", "Hello"),
    "UI event": lambda client, _: client.send_ui_event("click"),
    "UI snapshot": lambda client, _: client.send_ui_snapshot({"root": {}}),
    "UI job": lambda client, _: client.cancel_ui_job_group("1"),
    "disconnect bot": lambda client, _: client.disconnect_bot(),
    "action": lambda client, _: client.action({"service": "llm", "action": "run"}),
    "actions": lambda client, _: client.describe_actions(),
    "config": lambda client, _: client.get_bot_config(),
    "update of the config": lambda client, _: client.update_config([]),
    "config options": lambda client, _: client.describe_config(),
    "question": lambda client, _: client.ask("Hello"),
    "interrupting question": lambda client, _: client.barge_in("Hello"),
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_what_would_send(send: Callable[[RTVIClient, Path], object], tmp_path: Path) -> None:
    """A call that would send a message raises first, with advice; it leaves no turn, and the session continues."""
    transport = EarTransport()
    with ear_client(transport) as client:
        client.turns()
        with pytest.raises(UnsupportedFeatureError, match=r"by ear transport carries no messages.*Speak") as refused:
            send(client, tmp_path)
        assert refused.value.feature == "messages"
        assert client.turns() == ()
        assert client.ask(QUESTION, GUARD).status == "complete"
    assert transport.sent == []


def test_a_typed_question_does_not_wait_for_another() -> None:
    """A typed question raises at once, also while another thread asks."""
    transport = EarTransport(answers=(0,))
    with ear_client(transport) as client:
        first = InThread(lambda: client.ask(QUESTION, GUARD))
        until(lambda: any(turn.timings.user_stopped_reported for turn in client.turns()))
        with pytest.raises(UnsupportedFeatureError):
            client.ask("Hello", timeout=None)
        transport.say(0.1)
        assert first.get().status == "complete"


@pytest.mark.parametrize("version", ["", "0.3.0", "1.2.0", "2.2.0"])
def test_what_is_sent_by_itself(version: str, caplog: pytest.LogCaptureFixture) -> None:
    """Requests for the config and results of functions are not sent, and nothing is logged."""

    class Old(EarTransport):
        def send_ready_message(self) -> None:
            self.tell("bot-ready", {"version": version})

    called: list[str] = []

    def light(call: FunctionCall) -> str:
        called.append(call.function_name)
        return "on"

    transport = Old()
    with caplog.at_level(logging.DEBUG, "rtvi_sync"), ear_client(transport) as client:
        client.register_function_call_handler("light", light)
        given = {"function_name": "light", "tool_call_id": "1", "arguments": {}}
        transport.tell("llm-function-call-in-progress", given)
        until(lambda: called)
    assert transport.sent == []
    assert [record.message for record in caplog.records if record.levelno >= logging.INFO] == []


def test_a_loss_after_a_refused_request_to_leave() -> None:
    """A request to leave that was not sent is none: a session that is lost later is replaced."""
    transport = EarTransport()
    with ear_client(transport, reconnect=ReconnectPolicy()) as client:
        with pytest.raises(UnsupportedFeatureError):
            client.disconnect_bot()
        with client.events("bot_ready", timeout=GUARD) as events:
            transport.end()
            next(events)
        assert client.ask(QUESTION, GUARD).status == "complete"


def test_camera_and_screen() -> None:
    """Enabling them raises as over any transport without video."""
    with ear_client() as client:
        for enable in (client.enable_cam, client.enable_screen_share):
            with pytest.raises(UnsupportedFeatureError):
                enable(True)
