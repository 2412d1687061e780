"""The LLM context of a session."""

from __future__ import annotations

from rtvi_sync.testing import EmbeddedBot

from .bot_client import Talk, action, names, outline

USER = {"role": "user", "content": "Hello"}


def test_the_context_of_a_session(talk: Talk) -> None:
    """Questions and replies are in the context, which actions read, replace, extend and run."""
    with EmbeddedBot(version="0.3.0", replies=str.upper) as bot:
        client = talk(bot)
        assert client.ask("action", action("llm:append_to_messages", messages=[USER]))["data"] == {"result": True}
        assert client.ask("action", action("llm:get_context"))["data"] == {"result": [USER]}
        client.act("llm:run", id="run")
        items = client.until("bot-transcription")
        context = bot.wait_for_session().context
        parts = {"role": "user", "content": [{"type": "image"}, {"text": "two"}, {"text": "parts"}]}
        client.ask("action", action("llm:set_context", messages=[parts, {"role": "system"}], interrupt=True))
        client.act("llm:run", interrupt=False)
        more = client.until("bot-transcription")

    assert names(items) == ["action-response", "user-llm-text", "bot-llm-started", "bot-llm-text", "bot-transcription"]
    assert items[-1]["data"]["text"] == "HELLO"
    assert context == [USER, {"role": "assistant", "content": "HELLO"}]
    assert more[-1]["data"]["text"] == "TWO PARTS"


def test_a_run_that_fails_is_an_error(talk: Talk) -> None:
    """The action is answered before the language model fails; the error is general, and later actions are answered."""
    with EmbeddedBot(version="0.3.0", replies=lambda text: {"known": ""}[text]) as bot:
        client = talk(bot)
        client.act("llm:run")
        items = client.until("error")
        assert client.ask("action", action("tts:interrupt"))["data"] == {"result": True}

    assert [item["type"] for item in items] == ["action-response", "error"]
    assert items[-1]["data"] == {"error": "Error processing frame: ''", "fatal": False}


def test_each_session_has_a_context_of_its_own(talk: Talk) -> None:
    """A message that one client adds is not in another client's context."""
    with EmbeddedBot(version="0.3.0") as bot:
        first, second = talk(bot), talk(bot)
        first.ask("action", action("llm:append_to_messages", messages=[USER]))

        assert second.ask("action", action("llm:get_context"))["data"] == {"result": []}


def test_append_to_context(talk: Talk) -> None:
    """Bots of 1.x add messages to their context, answer with a result, and run if requested."""
    with EmbeddedBot(version="1.0.0", replies="Yes.") as bot:
        client = talk(bot)
        silent = client.ask("append-to-context", {"role": "system", "content": "Be brief."})
        client.send("append-to-context", {"role": "user", "content": "Hello", "run_immediately": True}, id="abc")
        items = client.until("bot-llm-stopped")
        context = bot.wait_for_session().context

    assert (silent["type"], list(silent["data"])) == ("append-to-context-result", ["result"])
    assert outline(items)[:3] == ["append-to-context-result", "user-llm-text Hello", "bot-llm-started"]
    assert items[0]["id"] == "abc"
    assert context == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes."},
    ]
