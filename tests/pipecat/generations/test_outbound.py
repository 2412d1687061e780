"""Messages to real bots: the bots' reactions, and the messages that an old bot never gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rtvi_sync import RTVIClient, RTVIEvent, UnsupportedFeatureError
from tests.pipecat.clients import Watch, ask_until, client_of
from tests.pipecat.conftest import BotServer
from tests.support.slowness import GUARD

TREE = {"root": {"ref": "e1", "role": "main", "children": []}, "captured_at": 1}


def test_text_for_later(pipecat_showcase: BotServer) -> None:
    """With run_immediately=False a text joins the context, is acknowledged, and has no answer."""
    with client_of(pipecat_showcase) as client, client.events(timeout=GUARD) as events:
        watch = Watch(events)
        client.send_text("Remember this", run_immediately=False)
        acknowledged = watch.until(RTVIEvent.USER_INPUT).data
        client.send_text("Now", audio_response=False)
        watch.until(RTVIEvent.BOT_LLM_STOPPED)
        context = ask_until(client, "context", 3)
    assert (acknowledged.text, acknowledged.input_type) == ("Remember this", "chat")
    assert [message["content"] for message in context] == ["Remember this", "Now", "You said: Now."]
    assert len(watch.data(RTVIEvent.BOT_LLM_STARTED)) == 1


def test_files(pipecat_showcase: BotServer, tmp_path: Path) -> None:
    """Files go to the model: by their content, a path or a URL, with the text that goes with them."""
    path = tmp_path / "notes.txt"
    path.write_bytes(b"from a path")
    with client_of(pipecat_showcase) as client, client.events(RTVIEvent.BOT_TRANSCRIPT, timeout=GUARD) as answers:
        client.send_file(b"hello", "look", run_immediately=False, format="text/plain", name="a.txt")
        client.send_file(path, run_immediately=False)
        client.send_file("https://example.org/b.pdf?page=1", "and look", audio_response=False)
        assert next(answers).data.text == "You said: and look."
        client.send_file(b"\x89PNG", "an image", run_immediately=False, format="image/png")
        context = ask_until(client, "context", 5)
    parts = [part for message in context if message["role"] == "user" for part in message["content"]]
    assert [part["text"] for part in parts if "text" in part] == ["look", "and look", "an image"]
    assert [part["file"] for part in parts if "file" in part] == [
        {"file_data": "data:text/plain;base64,aGVsbG8=", "filename": "a.txt", "mime_type": "text/plain"},
        {"file_data": "data:text/plain;base64,ZnJvbSBhIHBhdGg=", "filename": "notes.txt", "mime_type": "text/plain"},
        {"url": "https://example.org/b.pdf?page=1", "filename": "b.pdf", "mime_type": "application/pdf"},
    ]
    assert [part["image_url"] for part in parts if "image_url" in part] == [{"url": "data:image/png;base64,iVBORw=="}]


def test_keys_and_user_interface(pipecat_showcase: BotServer) -> None:
    """DTMF keys, and events of a user interface, reach the bot's own handlers unchanged, in their order."""
    with client_of(pipecat_showcase) as client:
        client.send_dtmf("1*#")
        client.send_ui_event("click", {"x": 1})
        client.send_ui_event("nothing")
        client.send_ui_snapshot(TREE)
        client.cancel_ui_job_group("job-1", "user")
        client.cancel_ui_job_group("job-2")
        journal = ask_until(client, "journal", 8)
    keys = [entry for entry in journal if "dtmf" in entry]
    assert keys == [{"dtmf": "1"}, {"dtmf": "*"}, {"dtmf": "#"}]
    assert [entry for entry in journal if "dtmf" not in entry] == [
        {"ui-event": {"event": "click", "payload": {"x": 1}}},
        {"ui-event": {"event": "nothing"}},
        {"ui-snapshot": {"tree": TREE}},
        {"ui-cancel-job-group": {"job_id": "job-1", "reason": "user"}},
        {"ui-cancel-job-group": {"job_id": "job-2"}},
    ]


def test_append_to_context(pipecat_configured_1_2: BotServer) -> None:
    """RTVI 1: messages of either side join the context; the bot answers if it is told to, and only by speaking."""
    with client_of(pipecat_configured_1_2) as client, client.events(RTVIEvent.BOT_TRANSCRIPT, timeout=GUARD) as answers:
        client.append_to_context("assistant", "I am a bot")
        client.append_to_context("user", "And I am not", run_immediately=True)
        assert next(answers).data.text == "You said: And I am not."
        context = ask_until(client, "context", 3)
    # The bot's config has put its own message first.
    assert [message["content"] for message in context[1:3]] == ["I am a bot", "And I am not"]


def test_text_of_rtvi_1(pipecat_configured_1_2: BotServer) -> None:
    """RTVI 1.2: a text is answered, aloud or not."""
    with client_of(pipecat_configured_1_2) as client, client.events(timeout=GUARD) as events:
        watch = Watch(events)
        client.send_text("Quietly", audio_response=False)
        watch.until(RTVIEvent.BOT_LLM_STOPPED)
        assert watch.data(RTVIEvent.BOT_TRANSCRIPT)[0].text == "You said: Quietly."
        client.send_text("Aloud")
        watch.until(RTVIEvent.BOT_STOPPED_SPEAKING)
    assert [data.text for data in watch.data(RTVIEvent.BOT_TTS_TEXT)] == ["You", "said:", "Aloud."]


SENDS: dict[str, Callable[[RTVIClient], object]] = {
    "client-message": lambda client: client.send_client_request("ping"),
    "send-text": lambda client: client.send_text("Hello"),
    "append-to-context": lambda client: client.append_to_context("user", "Hello"),
    "send-file": lambda client: client.send_file(b"hello"),
    "dtmf": lambda client: client.send_dtmf("1"),
    "ui-event": lambda client: client.send_ui_event("click"),
    "ui-snapshot": lambda client: client.send_ui_snapshot(TREE),
    "ui-cancel-job-group": lambda client: client.cancel_ui_job_group("job-1"),
}


@pytest.mark.parametrize(
    ("bot", "version", "unknown"),
    [
        ("pipecat_configured_0_3", "0.3.0", [*SENDS]),
        ("pipecat_configured_1_2", "1.2.0", ["send-file", "dtmf", "ui-event", "ui-snapshot", "ui-cancel-job-group"]),
        ("pipecat_showcase", "2.2.0", ["append-to-context"]),
    ],
)
def test_unknown_messages_are_not_sent(
    request: pytest.FixtureRequest, bot: str, version: str, unknown: list[str]
) -> None:
    """The client refuses a message that the bot's version does not know; the bot, which would answer, hears nothing."""
    with client_of(request.getfixturevalue(bot)) as client, client.events(RTVIEvent.MESSAGE_ERROR) as errors:
        for feature in unknown:
            with pytest.raises(UnsupportedFeatureError) as refused:
                SENDS[feature](client)
            assert (refused.value.feature, refused.value.bot_version) == (feature, version)
        client.disconnect_bot()
        assert list(errors) == []
