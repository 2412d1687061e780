"""The parts of the world that the model test relies on at its end."""

from __future__ import annotations

import threading

import pytest

from rtvi_sync import RTVIClient, TransportState
from tests.support.slowness import GUARD

from .world import Call, Options, World


def test_the_end_of_a_client_whose_handler_is_about_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that a handler starts after the first disconnect() is ended too."""
    world = World(Options(manual=False, secure=False, reconnect=False))
    entered, returned = threading.Event(), threading.Event()

    def act(client: RTVIClient) -> None:
        entered.set()
        assert returned.wait(GUARD)
        client.connect()

    together = world.together

    def note(calls: list[tuple[int, int, str]]) -> list[Call]:
        made = together(calls)
        if calls == [(0, 0, "disconnect")]:
            returned.set()
        return made

    while world.parties[0].client.state is not TransportState.READY:  # on a busy machine not within its limit
        world.together([(0, 0, "connect")])
    client = world.parties[0].client
    monkeypatch.setattr(world, "together", note)
    try:
        world.parties[0].ears.arm(act, None)
        world.bot_acts("say")
        assert entered.wait(GUARD)
    finally:
        world.end()
    assert client.state is TransportState.DISCONNECTED
