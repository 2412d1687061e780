"""The size of the package's structure, as one table: source, life-cycle fields, imports and walks.

    python -m tools.house           # the whole table
    python -m tools.house --source  # only the part that is read from the source
    python -m tools.house --modules # the sentence of each module instead, by layer

Of the source it counts lines, modules, classes, functions, circles of imports, and the fields that say where a client
is. Of live sessions it counts *walks*: the calls of the package's own functions on all threads of this process, whose
code is loaded and whose threads run already. The bot is in another process, so its calls don't count.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import FrameType

    from rtvi_sync import RTVIClient

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "rtvi_sync"

#: The fields that say where a client is, by class: which session, attempt or call there is, its progress, its end, and
#: the next step. A field counts if its value, or a value in its object, changes after construction. Not counted: parts
#: that are chosen once (a transport, a deadline, a callback), locks, statistics, media, and the sockets of a transport.
#: The table is kept by hand: `field_faults()` finds a field that no longer exists, and a field of these classes that is
#: assigned outside of the constructor and is in neither table.
#: classes that is assigned outside of the constructor and is in neither table.
LIFE: Final[Mapping[str, tuple[str, ...]]] = {
    "Attempt": ("_phase", "_until", "_error"),
    "ClientState": ("value", "owner"),
    "Connect": ("_candidate", "_has_next", "_limit"),
    "EventStreams": ("sessions", "_over", "_given_up", "_closed", "_forked"),
    "EventPublisher": ("_ending", "_silenced", "_over", "was_opened", "was_ready"),
    "Life": ("_holder", "_closed", "_actions", "operations", "last_session", "started", "failed"),
    "Operation": ("progress", "abandoned", "session", "pending"),
    "Reconnect": ("_thread", "lost"),
    "Session": (
        *("phase", "_early_ready", "introduced", "bot", "_info", "_close_task", "_transport_deadline", "connecting"),
        *("_closes_transport", "nothing_follows", "follows", "_owner"),
    ),
    "StartBot": ("_abort", "_bundle"),
    "Transport": ("state",),
    "Watch": ("operation",),
}
#: The fields of these classes that are assigned outside of the constructor and say nothing about where a client is.
OTHER: Final[Mapping[str, tuple[str, ...]]] = {
    "EventPublisher": ("_warnings",),
    "Session": ("_last_moment", "follower", "messages_received"),
    "Life": ("_conversation", "params", "candidates", "reconnects"),
    "Transport": ("on_message", "options"),
}
#: The aims of a redesign.
AIMS: Final[Mapping[str, str]] = {
    "lines": "36,000",
    "modules": "160",
    "Protocol and ABC classes": "20",
    "fields that say where a client is": "25",
    "the same with type-only imports": "client and helpers",
    "`RTVIClient(...)`": "60",
    "`connect()`, WebSocket, text only": "350 in 35",
    "`for_url()` and `connect()` over HTTP": "700 in 50",
    "`disconnect()`, text only": "250 in 22",
    "inbound message to a handler": "30 in 10",
    "audio frame to a `CallbackSink`": "40 in 12",
}

#: How often a walk is done. The first of them warm the process up.
_TIMES: Final = 6
#: Seconds without a call after which a walk is over.
_QUIET: Final = 0.1
#: Seconds for which audio is sent; of the second half the calls from one frame to the next are compared.
_STREAM_SECONDS: Final = 2.0
#: Seconds for the bot's process to start, and for anything to arrive.
_PATIENCE: Final = 30.0


# -- the source -------------------------------------------------------------------------------------------------------


def modules(package: Path = PACKAGE) -> dict[str, ast.Module]:
    """Return the syntax of each module, by the name under which it is imported."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text("utf-8"))
    return found


def sentences() -> Iterator[str]:
    """Yield the name of each module with the first line of its docstring, the highest layer first."""
    contract = (ROOT / "pyproject.toml").read_text("utf-8").partition("layers = [")[2].partition("]\n")[0]
    layers = re.findall(r"\w+", contract)
    found = {name.partition(".")[2] or "__init__": tree for name, tree in modules().items()}
    for layer in ["__init__", *layers]:
        for name, tree in found.items():
            if name.partition(".")[0] == layer:
                yield f"{name}: {(ast.get_docstring(tree) or '').splitlines()[0]}"


def classes(trees: Mapping[str, ast.Module]) -> list[ast.ClassDef]:
    """Return all classes."""
    return [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def is_abstract(node: ast.ClassDef) -> bool:
    """Whether a class is a protocol or names `ABC` or `ABCMeta` itself."""
    parts = [*node.bases, *(keyword.value for keyword in node.keywords)]
    names = {_last_name(part.value if isinstance(part, ast.Subscript) else part) for part in parts}
    return bool(names & {"Protocol", "ABC", "ABCMeta"})


def function_lengths(trees: Mapping[str, ast.Module]) -> list[int]:
    """Return the lines of each function, with its docstring, from `def` to its end."""
    nodes = (node for tree in trees.values() for node in ast.walk(tree))
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def imports(trees: Mapping[str, ast.Module], *, types: bool) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports, also inside of functions.

    Args:
        trees: the modules.
        types: count imports under `if TYPE_CHECKING:`, too.
    """
    packages = {name.rpartition(".")[0] for name in trees}
    found: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        parts = name.split(".")
        package = parts if name in packages else parts[:-1]
        for node in _imports_in(tree, types=types):
            if isinstance(node, ast.Import):
                targets = {alias.name for alias in node.names}
            else:
                above = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                # `from a import b` imports the module `a.b` if there is one, otherwise `a`.
                targets = {full if (full := f"{base}.{alias.name}") in trees else base for alias in node.names}
            found[name] |= targets & trees.keys() - {name}
    return found


def _imports_in(node: ast.AST, *, types: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, ast.If) and _last_name(child.test) == "TYPE_CHECKING" and not types:
            for other in child.orelse:
                yield from _imports_in(other, types=types)
        else:
            yield from _imports_in(child, types=types)


def largest_circle(imported: Mapping[str, Collection[str]]) -> list[str]:
    """Return the largest set of modules of which each imports every other, directly or by way of others."""
    reached: dict[str, set[str]] = {}
    for start in imported:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = [name for name in imported[waiting.pop()] if name not in seen]
            seen.update(new)
            waiting += new
        reached[start] = seen
    circles = [
        sorted(other for other in reached[name] if name in reached[other]) for name in imported if name in reached[name]
    ]
    return max(circles, key=len, default=[])


def field_faults(
    trees: Mapping[str, ast.Module],
    life: Mapping[str, Collection[str]] = LIFE,
    other: Mapping[str, Collection[str]] = OTHER,
) -> list[str]:
    """Return a line for each field of the tables that doesn't exist, and for each changing field that is in neither."""
    known = {node.name: node for node in classes(trees)}
    faults = []
    for name in sorted({*life, *other}):
        if name not in known:
            faults.append(f"{name}: there is no such class")
            continue
        listed = {*life.get(name, ()), *other.get(name, ())}
        first, later = _fields(known[name])
        faults += [f"{name}.{attribute}: there is no such field" for attribute in sorted(listed - first - later)]
        # A lock is assigned again in a forked child.
        changing = {attribute for attribute in later & first if not attribute.endswith("_lock")}
        faults += [f"{name}.{attribute} changes, and is in no table" for attribute in sorted(changing - listed)]
    return faults


def _fields(node: ast.ClassDef) -> tuple[set[str], set[str]]:
    """Return the attributes that a class makes in its body or constructor, and those that other methods assign."""
    first = {
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    later: set[str] = set()
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            assigned = {
                part.attr
                for part in ast.walk(method)
                if isinstance(part, ast.Attribute)
                and isinstance(part.ctx, ast.Store)
                and isinstance(part.value, ast.Name)
                and part.value.id == "self"
            }
            (first if method.name in ("__init__", "_begin") else later).update(assigned)
    return first, later


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def source_rows(package: Path = PACKAGE) -> list[tuple[str, ...]]:
    """Return the rows that are read from the source: a name and a count."""
    trees = modules(package)
    lines = sum(path.read_text("utf-8").count("\n") for path in package.rglob("*.py"))
    lengths = function_lengths(trees)
    circles = {types: largest_circle(imports(trees, types=types)) for types in (False, True)}
    return [
        ("lines", f"{lines:,}"),
        ("modules", str(len(trees))),
        ("classes", str(len(classes(trees)))),
        ("Protocol and ABC classes", str(sum(map(is_abstract, classes(trees))))),
        ("functions", f"{len(lengths):,}"),
        ("median lines of a function", f"{statistics.median(lengths):g}"),
        ("fields that say where a client is", f"{sum(map(len, LIFE.values()))} in {len(LIFE)} classes"),
        ("modules in the largest circle of imports", str(len(circles[False]))),
        ("the same with type-only imports", str(len(circles[True]))),
    ]


# -- the walks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Walk:
    """The calls of one walk.

    Attributes:
        calls: of the package's own functions. Before Python 3.12 a comprehension is a call, and so is each resumption
            of a generator.
        files: that the called functions are in.
        changes: how often a call of a thread is in another file than the thread's call before.
        threads: that made a call.
    """

    calls: int
    files: int
    changes: int
    threads: int

    @classmethod
    def of(cls, calls: Collection[tuple[int, str]]) -> Walk:
        """Return the counts of calls, each the id of its thread and the file of its function."""
        by_thread: dict[int, list[str]] = defaultdict(list)
        for thread, file in calls:
            by_thread[thread].append(file)
        changes = sum(a != b for files in by_thread.values() for a, b in pairwise(files))
        return cls(len(calls), len({file for _, file in calls}), changes, len(by_thread))


@dataclass
class Recorder:
    """The calls of the package's functions on this thread and on all threads that start from now on."""

    calls: list[tuple[int, str]] = field(default_factory=list)
    is_on: bool = False

    def install(self) -> None:
        """Watch the calls. Call it before the package starts a thread."""
        package = f"{PACKAGE}/"

        def watch(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and self.is_on and frame.f_code.co_filename.startswith(package):
                self.calls.append((threading.get_ident(), frame.f_code.co_filename))

        threading.setprofile(watch)
        sys.setprofile(watch)

    def remove(self) -> None:
        """Stop watching."""
        sys.setprofile(None)
        threading.setprofile(None)

    def walk(self, work: Callable[[], object]) -> Walk:
        """Return the calls of `work()` until all threads are quiet."""
        self.wait_until_quiet()
        self.calls.clear()
        self.is_on = True
        work()
        self.wait_until_quiet()
        self.is_on = False
        return Walk.of(self.calls)

    def wait_until_quiet(self) -> None:
        """Wait until no thread makes a call."""
        was_on, self.is_on = self.is_on, True
        before = -1
        while before != len(self.calls):
            before = len(self.calls)
            time.sleep(_QUIET)
        self.is_on = was_on


def usual(walks: list[Walk]) -> Walk:
    """Return the walk with the median number of calls."""
    return sorted(walks, key=lambda walk: walk.calls)[(len(walks) - 1) // 2]


def walk_rows() -> list[tuple[str, ...]]:
    """Do each walk with a bot in another process; return rows of a name, calls, files, changes of file, and threads."""
    recorder = Recorder()
    recorder.install()  # before the import, whose code may start threads
    bot = subprocess.Popen(
        [sys.executable, "-c", _BOT], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert bot.stdin is not None
    assert bot.stdout is not None
    try:
        ws_url, base_url = bot.stdout.readline().split()
        walks = {
            **_walks_of_sessions(recorder, ws_url, base_url),
            **_walks_of_frames(recorder, ws_url, bot.stdin),
        }
    finally:
        recorder.remove()
        bot.stdin.close()
        bot.wait(_PATIENCE)
        bot.stdout.close()
    return [(name, f"{w.calls:,}", str(w.files), str(w.changes), str(w.threads)) for name, w in walks.items()]


def _walks_of_sessions(recorder: Recorder, ws_url: str, base_url: str) -> dict[str, Walk]:
    """Make clients, connect and disconnect them, over and over."""
    from rtvi_sync import RTVIClient, WebSocketTransport

    def keep(make: Callable[[], RTVIClient]) -> None:
        clients.append(make())

    def over_websocket() -> RTVIClient:
        return RTVIClient(transport=WebSocketTransport(ws_url), text_only=True)

    def over_http() -> RTVIClient:
        client = RTVIClient.for_url(base_url, text_only=True)
        client.connect()
        return client

    walks: dict[str, list[Walk]] = defaultdict(list)
    for _ in range(_TIMES):
        clients: list[RTVIClient] = []
        walks["`RTVIClient(...)`"].append(recorder.walk(partial(keep, over_websocket)))
        walks["`connect()`, WebSocket, text only"].append(recorder.walk(clients[0].connect))
        clients[0].close()
        walks["`for_url()` and `connect()` over HTTP"].append(recorder.walk(partial(keep, over_http)))
        walks["`disconnect()`, text only"].append(recorder.walk(clients[1].disconnect))
        clients[1].close()
    return {name: usual(of_one[_TIMES // 2 :]) for name, of_one in walks.items()}


def _walks_of_frames(recorder: Recorder, ws_url: str, bot: IO[str]) -> dict[str, Walk]:
    """Receive messages and audio frames one by one, and send a stream of audio, in one session."""
    from rtvi_sync import RTVIClient, WebSocketTransport
    from rtvi_sync.media import CallbackSink, ToneSource  # a tone is read on the thread that sends it

    arrived = threading.Semaphore(0)
    marks: list[int] = []  # how many calls there were when each frame was sent

    class Marking(WebSocketTransport):
        def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
            marks.append(len(recorder.calls))
            super().send_audio(pcm, sample_rate_hz)

    def receive(what: str) -> None:
        bot.write(f"{what}\n")
        bot.flush()
        assert arrived.acquire(timeout=_PATIENCE)

    client = RTVIClient(
        transport=Marking(ws_url),
        mic=ToneSource(),
        speaker=CallbackSink(lambda _pcm, _rate: arrived.release()),
        enable_mic=False,
    )
    client.on("user-transcription", lambda _: arrived.release())
    with client:
        received = {
            what: usual([recorder.walk(partial(receive, what)) for _ in range(_TIMES)][_TIMES // 2 :])
            for what in ("message", "audio")
        }
        recorder.calls.clear()
        recorder.is_on = True
        client.enable_mic(True)
        time.sleep(_STREAM_SECONDS)
        recorder.is_on = False
        half = marks[len(marks) // 2 :]
        sent = usual([Walk.of(recorder.calls[a:b]) for a, b in pairwise(half)])
    return {
        "inbound message to a handler": received["message"],
        "audio frame to a `CallbackSink`": received["audio"],
        "microphone frame to the socket": sent,
    }


#: The bot's process: it prints its URLs. Each line of its input then has it send a message or an audio frame.
_BOT: Final = """
import sys
from rtvi_sync.protocol.frames import AudioRawFrame
from rtvi_sync.testing import EmbeddedBot

DATA = {"text": "Hello", "final": True, "timestamp": "2026-01-01T12:00:00.000+00:00", "user_id": "user"}

with EmbeddedBot(speech_threshold=float("inf")) as bot:
    print(bot.ws_url, bot.base_url, flush=True)
    for line in sys.stdin:
        session = bot.sessions[-1]
        if line == "message\\n":
            session.send({"label": "rtvi-ai", "type": "user-transcription", "data": DATA})
        else:
            session.send_frame(AudioRawFrame(audio=bytes(range(240)) * 4, sample_rate=24000))
"""


# -- the table --------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if the table of fields isn't true any more."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", action="store_true", help="only what is read from the source")
    parser.add_argument("--modules", action="store_true", help="the sentence of each module, by layer")
    options = parser.parse_args(arguments)
    if options.modules:
        print(*sentences(), sep="\n")
        return 0
    print("| | count or calls | files | changes of file | threads | aim |\n|---|--:|--:|--:|--:|--:|")
    for name, *cells in [*source_rows(), *([] if options.source else walk_rows())]:
        print("|", " | ".join([name, *cells, *[""] * (4 - len(cells)), AIMS.get(name, "")]), "|")
    faults = field_faults(modules())
    print(*(f"tools/house.py: {fault}" for fault in faults), sep="\n", end="\n" if faults else "", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
