"""The client's methods for events. The tests of the event bus and its streams cover events in a session."""

from __future__ import annotations

import pytest

from rtvi_sync import RTVIEvent
from tests.support.clients import bot_says, memory_client

NAMES = [RTVIEvent.SERVER_MESSAGE, "serverMessage", "server_message", "server-message"]


@pytest.mark.parametrize("name", NAMES)
def test_an_event_has_its_name_at_every_door(name: RTVIEvent) -> None:
    """An event can be compared with the name under which it was awaited, whichever that is."""
    heard: list[object] = []
    with memory_client(events="manual") as client:
        client.on(name, heard.append)
        client.once(name)(heard.append)
        with client.events(name, timeout=5) as events:
            bot_says(client, "server-message", 1)
            event = next(events)
            assert (event.type == name, event.data) == (True, 1)
            bot_says(client, "server-message", 2)
            assert client.wait_for(name, where=lambda event: event.data == 2, timeout=5).type == name
        client.off(name)
        bot_says(client, "server-message", 3)
        client.process_events()
    assert heard == [1, 1, 2]
