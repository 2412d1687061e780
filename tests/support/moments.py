"""Moments inside the package at which tests let something else happen: the one place that knows where they are."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

#: By the name of the moment: the function of the package that runs then, and a function that returns the subject of its
#: arguments.
_PLACES: dict[str, tuple[str, Callable[..., object]]] = {
    "connect() prepares to repeat itself": ("session.reconnect_policy:Retries.__init__", lambda *_, **__: None),
    "an attempt is about to make a session": (
        "client.life:Life.make_session",
        lambda _, operation, *__, **___: operation,
    ),
    "an attempt gets its time": (
        "client.connect_steps:Attempt.__init__",
        lambda _, __, ___, deadline, ____, patience: (deadline.timeout, patience),
    ),
    "connect() makes a session": ("client.life:Session", lambda *_, owner, **__: owner),
    "a session is made": ("session.session:about_this_client", lambda: None),
    "a session takes its threads": ("session.session:acquire_runtime", lambda: None),
    "the reconnect thread takes its threads": ("client.reconnect:acquire_runtime", lambda: None),
    "the reconnect thread starts": ("client.reconnect:start_thread", lambda *_: None),
    "a loss is passed on": ("client.life:Life.session_drained", lambda _, session: session.number),
    "an event is queued": ("session.event_bus:EventPublisher.event", lambda _, type_, *__, **___: type_),
    "listeners are looked for": ("session.event_bus:EventPublisher._step", lambda _, type_, data=None: data),
    "an event between sessions is queued": ("client.life:Life.publish", lambda _, event, __: event),
    "the turns of a session are followed": ("conversation.follow:ConversationTracker.follow", lambda *_: None),
    "a session gets its follower": ("conversation.follow:SessionFollower.__init__", lambda *_: None),
    "the connect thread runs": ("client.connect_steps:Attempt._work", lambda *_: None),
    "a thread of the pool gets a task": ("concurrency.pool_task:PoolTask._run", lambda task, _: task.role),
    "a state is set": ("session.event_bus:EventPublisher.move", lambda _, state: state),
    "an action is posted": ("session.http_action:post_stream", lambda *_, **__: None),
    "devices take their threads": ("client.life:acquire_runtime", lambda: None),
    "connect() opens the devices": ("media.media:Media.prepare", lambda *_, **__: None),
    "a device is opened": ("media.media:Media._prepare", lambda *_, **__: None),
    "WebRTC is looked for": ("transports.small_webrtc:is_installed", lambda *_: None),
    "a speaker gets audio": ("media.devices.speaker:DeviceSpeaker.write", lambda *_: None),
    "the source of a question is made": ("conversation.ask:source_of", lambda *_: None),
}


@contextlib.contextmanager
def at(moment: str, call: Callable[[Callable[[], Any], Any], Any]) -> Iterator[None]:
    """Call something, in the block, each time that a moment is reached, on the thread that reaches it.

    Args:
        moment: by its name.
        call: called with a function that lets the package go on, whose result it returns; and with the moment's
            subject: the type of an event, or the number of a session.
    """
    place, about = _PLACES[moment]
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(f"rtvi_sync.{module}")
    *classes, name = path.split(".")
    for attribute in classes:
        owner = getattr(owner, attribute)
    real = getattr(owner, name)

    def instead(*arguments: Any, **options: Any) -> Any:
        return call(lambda: real(*arguments, **options), about(*arguments, **options))

    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, real)
