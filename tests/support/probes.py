"""Questions about the inside of the package that have no public answer: the one place that knows private names."""

from __future__ import annotations

from typing import Any

from rtvi_sync import RTVIClient, RTVIEvent
from tests.support.clients import manager_of, session_of, transport_of


def waiting_calls(client: RTVIClient) -> int:
    """Return how many streams are open: those of the application, and those of calls that wait."""
    return len(client._dispatcher._live_streams())


def listeners(client: RTVIClient) -> tuple[int, int, int]:
    """Return how many streams, handlers and observers of events there are, handlers of the application among them."""
    dispatcher = client._dispatcher
    handlers, observers = dispatcher._handlers.values(), dispatcher._observers.values()
    return waiting_calls(client), sum(map(len, handlers)), sum(map(len, observers))


def is_delivered(client: RTVIClient, event: RTVIEvent) -> bool:
    """Return whether anything listens to an event, so that it is decoded and queued."""
    return client._dispatcher.has_listener(event)


def queued_events(client: RTVIClient) -> int:
    """Return how many events wait for their handlers."""
    return len(client._dispatcher.queue)


def in_handler(client: RTVIClient) -> bool:
    """Return whether a thread delivers events of the client now."""
    return client._dispatcher.queue.runs_on is not None


def is_retrying(client: RTVIClient) -> bool:
    """Return whether an attempt to replace a lost session is under way, or planned."""
    reconnector = manager_of(client)._reconnector
    return reconnector is not None and reconnector.pending is not None


def replaces_microphone(client: RTVIClient) -> bool:
    """Return whether a spoken question is in the place of the microphone."""
    return session_of(client).media._session._inserted is not None


def follows_turns(client: RTVIClient) -> bool:
    """Return whether the client has begun to follow the turns of its sessions."""
    return client._conversation._conversation is not None


def turns_kept(client: RTVIClient) -> int:
    """Return how many turns that are over the client keeps."""
    return len(client._conversation.get()._over)


def questions_under_way(client: RTVIClient) -> int:
    """Return how many questions have turns that no other call may return."""
    conversation = client._conversation.get()
    return len(conversation.asked) + len(conversation.speaking)


def requests_under_way(client: RTVIClient) -> int:
    """Return how many requests of the session wait for their answer."""
    return len(session_of(client).channel.engine.pending._awaited)


def set_bot(client: RTVIClient, bot: Any) -> None:
    """Let another function be the bot of a client with a memory transport."""
    transport_of(client)._bot = bot


def session_has_ended(client: RTVIClient) -> bool:
    """Return whether everything of the last session is closed."""
    session = manager_of(client).last_session
    return session is not None and session.ending.closed.is_set()


def forget_what_follows(client: RTVIClient) -> None:
    """Leave the last session as Ctrl-C leaves it between the attempts on two transports: nothing follows it."""
    manager_of(client).last_session.ending.is_replaced = True
