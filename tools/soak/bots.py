"""The soak's bots, in a process of their own, with fault proxies before them."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import random
import signal
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

import attrs

from rtvi_sync import DisconnectedError, RTVIError
from rtvi_sync.protocol.frames import TextFrame, TranscriptionFrame
from rtvi_sync.testing import BotSession, EmbeddedBot, FaultProxy, Injection, ProxyConnection, faults

# Mean seconds from one fault to the next.
_FAULT_INTERVAL: Final = 0.4
# The range of the duration, in seconds, of a fault that ends.
_FAULT_SECONDS: Final = (0.2, 3.0)
_FLOOD: Final = 300
_FRAMES: Final = 20
_CALL_SECONDS: Final = 2.0
# One of each generation; chosen for each round.
_VERSIONS: Final = ("0.3.0", "1.0.0", "1.2.0", "2.2.0")
_CONFIG: Final[list[dict[str, Any]]] = [
    {"service": "tts", "options": [{"name": "voice", "value": "ada"}, {"name": "speed", "value": 1}]},
    {"service": "llm", "options": [{"name": "model", "value": "large"}]},
]
_ANSWER_SECONDS: Final = 60.0

_FAULTS: Final[tuple[Callable[[random.Random], faults.ConnectionFault], ...]] = (
    lambda rng: faults.Delay(rng.uniform(0.01, 0.4)),
    lambda rng: faults.Split(rng.choice((1, 20, 300))),
    lambda rng: faults.Coalesce(1_000_000, rng.uniform(0.01, 0.2)),
    lambda rng: faults.Throttle(rng.uniform(5_000, 100_000)),
    lambda rng: faults.Drop(rng.randint(1, 20)),
    lambda _: faults.Drop(),
    lambda rng: faults.Corrupt(rng.randint(1, 4), rng.randint(1, 255)),
    lambda _: faults.Corrupt(None, 0xFF),
    lambda _: faults.BlackHole(),
    lambda _: faults.HalfClose(),
    lambda _: faults.Reset(),
)


@attrs.frozen
class Address:
    """The addresses of a bot behind fault proxies.

    Attributes:
        base_url: the URL of its connect endpoint.
        ws_url: the URL of its WebSocket.
        authority: the certificate, as PEM, of the authority that signed its own; None: it is reached without TLS.
    """

    base_url: str
    ws_url: str
    authority: str | None


class Bots:
    """The bots' process, for the soak's process. Used by one thread."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="soak-bots", daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, seed: str) -> Sequence[Address]:
        """Start bots, and inject random faults."""
        addresses: Sequence[Address] = self._request(seed)
        return addresses

    def end(self) -> Counter[str]:
        """Stop the bots. Return the number of injected faults by kind."""
        struck: Counter[str] = self._request(None)
        return struck

    def close(self) -> None:
        """End the process."""
        self._line.close()
        self._process.join(_ANSWER_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def _request(self, order: str | None) -> Any:
        self._line.send(order)
        if not self._line.poll(_ANSWER_SECONDS):
            raise RuntimeError("the bots' process does not answer")
        return self._line.recv()


# -- in the bots' process --------------------------------------------------------------------------------------------


def _serve(line: Connection) -> None:
    import trustme  # imported here, because the measured process needs no cryptography

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the soak's own process decides when to end
    logging.disable()  # the bots log everything that they refuse
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    certificate = authority.cert_pem.bytes().decode()
    with contextlib.suppress(EOFError):
        while True:
            rng = random.Random(line.recv())
            version = rng.choice(_VERSIONS)
            with _run_bot(None, version) as plain, _run_bot(context, version) as secure:
                proxies = [*plain[1:], *secure[1:]]
                line.send([_address(*plain, None), _address(*secure, certificate)])
                scheduler = FaultScheduler(proxies, rng)
                try:
                    line.recv()
                finally:
                    struck = scheduler.end()
            line.send(struck)


@contextlib.contextmanager
def _run_bot(context: ssl.SSLContext | None, version: str) -> Iterator[tuple[EmbeddedBot, FaultProxy, FaultProxy]]:
    """Run a bot, and the proxies before its two ports."""
    with (
        EmbeddedBot(
            ssl_context=context,
            version=version,
            handler=_handle_message,
            on_request={"refuse": _refuse, "slow": _answer_late},
            config=_CONFIG,
            on_config=_check,
            actions={"math:add": _add, "math:fail": _refuse},
            hangover=0.2,
        ) as bot,
        FaultProxy.before(bot.base_url) as http,
        FaultProxy.before(bot.ws_url) as ws,
    ):
        yield bot, http, ws


def _address(bot: EmbeddedBot, http: FaultProxy, ws: FaultProxy, authority: str | None) -> Address:
    return Address(http.url(bot.base_url), ws.url(bot.ws_url), authority)


def _handle_message(session: BotSession, message: dict[str, Any]) -> bool:
    """Obey a client message."""
    if message["type"] != "client-message":
        return False
    action = message["data"].get("t")
    with contextlib.suppress(DisconnectedError):
        if action == "leave":
            session.close(1001, "bye")
        elif action == "drop":
            session.drop()
        elif action == "flood":
            for number in range(_FLOOD):
                session.send({"label": "rtvi-ai", "type": "server-message", "data": {"number": number}})
        elif action == "text frames":
            for _ in range(_FRAMES):
                session.send_raw("no RTVI, and skipped")
                session.send_frame(TextFrame(text="of a pipeline"))
                session.send_frame(TranscriptionFrame(text="of a pipeline", user_id="user", timestamp="now"))
        elif action == "call":
            threading.Thread(target=_call, args=(session,), daemon=True).start()
        else:
            return False
    return True


def _call(session: BotSession) -> None:
    """Call a function of the client, which may fail; a fault may corrupt the answer."""
    with contextlib.suppress(RTVIError, LookupError, TypeError):
        session.call_function("get_weather", {"city": "Oslo"}, _CALL_SECONDS)


def _check(service: str, option: str, value: Any) -> None:
    if option == "speed" and value <= 0:
        raise ValueError(f"{service} cannot speak backwards")


def _add(a: int, b: int) -> int:
    return a + b


def _refuse(data: Any) -> Any:
    raise ValueError(f"no {data!r} here")


def _answer_late(data: Any) -> Any:
    threading.Event().wait(0.3)
    return data


class FaultScheduler:
    """Random temporary faults, on open connections and on later ones."""

    def __init__(self, proxies: Sequence[FaultProxy], rng: random.Random) -> None:
        self._proxies = proxies
        self._rng = rng
        self._struck: Counter[str] = Counter()
        self._active: list[tuple[float, Callable[[], object]]] = []
        self._injections: list[tuple[str, Injection]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-faults")
        self._thread.start()

    def end(self) -> Counter[str]:
        """Stop. Return the number of injected faults by kind."""
        self._over.set()
        self._thread.join()
        self._struck.update(kind for kind, injection in self._injections if injection.struck)
        return self._struck

    def _run(self) -> None:
        while not self._over.wait(self._rng.expovariate(1 / _FAULT_INTERVAL)):
            now = time.monotonic()
            for _, lift in (due for due in self._active if due[0] <= now):
                lift()
            self._active = [rest for rest in self._active if rest[0] > now]
            end = self._inject(self._rng.choice(self._proxies))
            self._active.append((now + self._rng.uniform(*_FAULT_SECONDS), end))

    def _inject(self, proxy: FaultProxy) -> Callable[[], object]:
        """Inject a fault. Return the function that ends it."""
        rng = self._rng
        if rng.random() < 0.03:
            proxy.refuse()
            self._struck["refuse"] += 1
            return proxy.accept
        fault = rng.choice(_FAULTS)(rng)
        lines: list[FaultProxy | ProxyConnection] = [proxy]
        lines += [connection for connection in proxy.connections if not connection.ended]
        injection = rng.choice(lines).inject(
            fault,
            rng.choice(("to_client", "to_server", None)),
            after_bytes=rng.choice((0, rng.randrange(1_000), rng.randrange(50_000))),
        )
        self._injections.append((type(fault).__name__, injection))
        return injection.lift
