"""The handshake: the messages before bot-ready, and the fields of bot-ready."""

from __future__ import annotations

from rtvi_sync.testing import EmbeddedBot

from .bot_client import CONFIG, Talk, greeted, names


def test_config_in_bot_ready(talk: Talk) -> None:
    """Bots of 0.3 send it to all clients, bots of 1.x to clients before 1.0, later ones to none."""
    for version, client_version, told in [
        ("0.3.0", "2.2.0", True),
        ("1.2.0", "0.3.0", True),
        ("1.2.0", None, True),
        ("1.2.0", "1.2.0", False),
        ("2.2.0", "2.2.0", False),
    ]:
        with EmbeddedBot(version=version, config=CONFIG) as bot:
            assert greeted(talk(bot), client_version)[1].get("config") == (CONFIG if told else None)


def test_metrics_come_before_bot_ready(talk: Talk) -> None:
    """With `metrics` the first message is not bot-ready, as with real bots."""
    with EmbeddedBot(metrics=True) as bot:
        client = talk(bot)
        client.send("client-ready", {"version": "2.2.0"})

        assert names(client.until("bot-ready")) == ["metrics", "bot-ready"]


def test_a_bot_that_never_gets_ready(talk: Talk) -> None:
    """With `ready=False` client-ready is not answered, everything else is."""
    with EmbeddedBot(ready=False) as bot:
        client = talk(bot)
        client.send("client-ready", {"version": "2.2.0"})
        client.send("client-message", {"t": "fence"})

        assert names(client.until("server-response")) == ["server-response"]
