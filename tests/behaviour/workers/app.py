"""The web application of the tests, for every kind of worker; its environment says where the bot is.

`shared` is made at import and connected by the first request that needs it, `early` is connected at import.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from rtvi_sync import ForkedProcessError, RTVIClient, SmallWebRTCTransport, WebSocketTransport
from rtvi_sync.media import BytesSink, NullSink, SilenceSource, ToneSource
from tests.support.slowness import GUARD
from tests.support.threads import end_idle_threads

URL = os.environ["RTVI_BOT_URL"]


def new_client(**media: Any) -> RTVIClient:
    """Return a client that is not connected."""
    media = {"mic": SilenceSource(), "speaker": NullSink(), **media}
    transport = SmallWebRTCTransport(URL) if URL.startswith("http") else WebSocketTransport(URL)
    return RTVIClient(transport=transport, connect_timeout=GUARD, request_timeout=GUARD, **media)


def tell_process(client: RTVIClient) -> None:
    """Have `client` answer the bot's question with the id of its process."""
    client.on("server-message", lambda said: client.send_client_message("heard", {"pid": os.getpid(), "said": said}))


shared = new_client()
connecting = threading.Lock()
early = new_client()
tell_process(early)
if os.environ.get("RTVI_CONNECT_EARLY"):
    early.connect()


def connected() -> RTVIClient:
    """Return `shared`, connected once per process."""
    with connecting:
        if not shared.connected:
            shared.connect()
    return shared


def in_shared(word: str) -> Any:
    """Return an answer of the bot in the session that all requests share."""
    return connected().send_client_request("echo", word)


def in_own(word: str) -> Any:
    """Return an answer in a session of the request's own."""
    with new_client() as client:
        return client.send_client_request("echo", word)


def in_early(word: str) -> Any:
    """Measure how a session that was live at the fork refuses: the fastest of many calls."""
    took = []
    for _ in range(50):
        begun = time.perf_counter()
        try:
            early.send_client_request("echo", word)
        except ForkedProcessError as error:
            took.append(time.perf_counter() - begun)
            text = str(error)
    early.disconnect()
    return {"seconds": min(took), "times": len(took), "text": text, "state": early.state.value}


def talk(_: str) -> Any:
    """Take a spoken turn; return how much of the bot's voice arrived."""
    sink = BytesSink()
    client = new_client(mic=ToneSource(duration=0.1), speaker=sink)
    with client.events("bot-stopped-speaking", timeout=GUARD) as ends, client:
        next(ends)
    return len(sink.pcm)


def many(word: str) -> Any:
    """Make eight requests at once, half of them in the session that all share."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda view, n: view(word + str(n)), [in_shared, in_own] * 4, range(8)))


def crowd(number: str) -> Any:
    """Open a number of live sessions at once: how many answers there are, and how many threads the system knows of."""
    with ExitStack() as stack:
        clients = [stack.enter_context(new_client()) for _ in range(int(number))]
        answers = [client.send_client_request("echo", n) for n, client in enumerate(clients)]
        return {"answers": len(answers), **threads("")}


def hang(word: str) -> Any:
    """Wait for an answer that never arrives."""
    return connected().send_client_request("never", word, timeout=None)


def block(_: str) -> None:
    """Make the handler of an event block for ever."""
    client = connected()

    def never_returns() -> None:
        client.send_client_message("blocked")
        threading.Event().wait()

    client.on("server-message", never_returns)


def leave(_: str) -> None:
    """End the session that all share."""
    shared.disconnect()


def threads(_: str) -> Any:
    """Return the system's threads, the package's threads without idle ones, and whether the calling thread takes
    signals.
    """
    end_idle_threads()
    ours = [thread.name for thread in threading.enumerate() if thread.name.startswith("rtvi-")]
    takes = signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return {"system": len(list(Path("/proc/self/task").iterdir())), "package": ours, "takes_signals": takes}


VIEWS: dict[str, Callable[[str], Any]] = {
    f"/{view.__name__}": view for view in (in_shared, in_own, in_early, talk, many, crowd, hang, block, leave, threads)
}


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer as WSGI asks: the answer of a view, and the process that gave it."""
    word = parse_qs(environ["QUERY_STRING"]).get("word", [""])[0]
    answer = {"pid": os.getpid(), "answer": VIEWS[environ["PATH_INFO"]](word)}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
