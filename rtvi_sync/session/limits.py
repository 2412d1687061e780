"""Limits of the end of a session, in seconds.

`disconnect()` returns within `TEARDOWN_LIMIT`, 5 s. The steps of the end share it, one after the other:

| step | ends after | constants |
|---|---|---|
| abandon the attempt: its thread, and a thread that aborts it | 0.2 s | twice `SETTLE_TIMEOUT` |
| the transport sends what waits (3.6 s), then closes | 4.2 s | `TRANSPORT_SHARE`, `SENDING_SHARE` |
| sources, sinks and devices stop | 4.25 s | `MEDIA_SHARE`; one takes `FLUSH_TIMEOUT`, a slow sink until `SINK_SHARE` |
| handlers of the last events, functions that the bot called | 4.5 s | `OWN_SHARE`, `FUNCTIONS_TIMEOUT` |
| the waiting call sees the result | 5.0 s | |

A step that ends early leaves its time to the next ones.
"""

from __future__ import annotations

# What `disconnect()` promises.
TEARDOWN_LIMIT = 5.0
# The teardown itself stops waiting before that, so that the waiting call still sees its result.
OWN_SHARE = 0.9
# A transport that does not return leaves the rest of the limit to the handlers of the last events.
TRANSPORT_SHARE = 0.8
# The part of the transport's time in which it may send what waits; the rest is for closing.
SENDING_SHARE = 0.9
# A speaker with a long buffer leaves the rest of the limit to these handlers, too.
MEDIA_SHARE = 0.85
# Audio that was received and not played yet is played to its end, up to this. A speaker beside busy threads has 0.6 s.
# A sink of the application that takes nothing for this long hangs.
FLUSH_TIMEOUT = 1.5
# A sink that is slow and works goes on until this share of the limit has passed. Handlers get the rest.
SINK_SHARE = 0.6
# A thread whose socket was shut down needs this long to notice it, even on a busy machine; one that sits in a name
# look-up or in the application's code is left behind after it.
SETTLE_TIMEOUT = 0.1
# The result of a function that the bot called has no receiver any more, so the wait for it is shorter.
FUNCTIONS_TIMEOUT = 1.0
# At exit there may be no thread that delivers events: the exiting thread does so, up to this.
EXIT_DELIVERY_TIMEOUT = 1.0
# How long `connect()` waits, after its attempt has ended, for the threads and handlers of that attempt, and an action
# without a session, or all that `disconnect()` abandons, for its thread. They end at once, unless the application's own
# code runs in them.
LINGER_TIMEOUT = 0.1
# How long `disconnect()` waits for an attempt or the reconnect thread that it has stopped.
STOP_TIMEOUT = 1.0


def time_to_send(remaining: float) -> float:
    """Return how many seconds a transport may spend on sending, of the `remaining` ones for its `disconnect()`."""
    return SENDING_SHARE * min(remaining, TEARDOWN_LIMIT * TRANSPORT_SHARE)
