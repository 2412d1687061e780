"""The pytest plugin: fixtures that connect to a bot under test, and its timeline in reports of failed tests.

Every run of pytest imports this module if the package is installed, so the module imports the rest of the package only
when a fixture is used.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import inspect
import math
import os
import re
import sys
import threading
import traceback
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pytest

if TYPE_CHECKING:
    from rtvi_sync import BotReadyData, HandlerError, RecordingSession, RTVIClient, RTVIError, Turn
    from rtvi_sync.recording.compare import Comparison
    from rtvi_sync.recording.percentiles import ComparedTurn
    from rtvi_sync.testing import EmbeddedBot
    from rtvi_sync.testing.scenarios.model import Scenario
    from rtvi_sync.testing.scenarios.report import ScenarioResult

__tracebackhide__ = True  # pytest shows the line of the test instead

_TIMEOUT = 30.0  # default of ask(), listen() and expect()
# Properties of a test, as in JUnit XML: one for each turn with the latency.
_LATENCIES = {"voice_to_voice": "rtvi_voice_to_voice", "time_to_first_audio": "rtvi_first_audio"}
_TURNS = "rtvi_turns"
_RECORDING = "rtvi_recording"
_ANSWERS = "rtvi_answers"  # attribute of a test's report: its turns, as plain values
_FIGURES = (_TURNS, *_LATENCIES.values())
_MAX_TURNS = 5  # in the report of a failed test
_MAX_NAME = 150  # characters of a test's node id in the name of its recording
_MAX_WHY = 500  # characters of an error on the page of its test
_NOT_RECORDED = "--rtvi-record-failed DIR keeps a recording of each failed test: its messages and its audio"
_PACKAGE, _PYTHON = Path(__file__).parents[1], Path(os.__file__).parent
_ENDING = 2.0  # seconds that threads may need to end after a test

# Options of the marker; all others belong to `EmbeddedBot`.
_NOT_OF_THE_BOT = ("live", "client", "connect")

_clients: pytest.StashKey[list[RTVIClient]] = pytest.StashKey()
_recordings: pytest.StashKey[list[RecordingSession]] = pytest.StashKey()
_not_connected: pytest.StashKey[list[RTVIError]] = pytest.StashKey()
_has_failed: pytest.StashKey[bool] = pytest.StashKey()
_patience: pytest.StashKey[float] = pytest.StashKey()  # for a bot that the next scenario meets

MARKER = """\
rtvi(live=None, client={}, connect={}, **bot): the bot and the client of a test. live=True: runs only with --rtvi-url; \
live=False: only without it. client: options of RTVIClient; connect: request data; bot: options of EmbeddedBot"""


# -- options ----------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line and of the ini file."""
    group = parser.getgroup("rtvi", "voice bots that speak RTVI (rtvi_sync)")
    add = group.addoption
    add("--rtvi-url", metavar="URL", help="URL of the bot under test, see connect(); also RTVI_URL, rtvi_url (ini)")
    add(
        "--rtvi-transport",
        metavar="NAME",
        type=_transport,
        help="transport to the bot, see connect(); default: rtvi_transport (ini), or the one that the bot accepts",
    )
    add("--rtvi-token", metavar="TOKEN", help="token for the WebSocket of the bot under test")
    add(
        "--rtvi-header",
        metavar="'NAME: VALUE'",
        type=_header,
        action="append",
        default=[],
        help="HTTP header for the bot's server; may be repeated",
    )
    add(
        "--rtvi-timeout",
        metavar="S",
        type=_seconds,
        default=_TIMEOUT,
        help="default timeout of connect(), ask(), listen(), expect()",
    )
    add("--rtvi-latency-budget", metavar="S", type=_seconds, help="fail a test if the bot takes longer to answer")
    add("--rtvi-record", metavar="DIR", help="keep a recording of each rtvi_connect client in this folder")
    add(
        "--rtvi-record-failed",
        metavar="DIR",
        help="keep recordings of failed tests in this folder; also rtvi_record_failed (ini)",
    )
    add(
        "--rtvi-baseline",
        metavar="DIR",
        help="fail the run if its answers are slower than in these recordings, made by --rtvi-record",
    )
    add(
        "--rtvi-scenarios",
        action="store_true",
        help="collect scenario files (test_*.yaml and *.rtvi.yaml) as tests; also rtvi_scenarios (ini)",
    )
    parser.addini("rtvi_url", "URL of the bot under test", default="")
    parser.addini("rtvi_transport", "transport to the bot under test", default="auto")
    parser.addini("rtvi_record_failed", "folder for recordings of failed tests", default="")
    parser.addini("rtvi_scenarios", "collect scenario files as tests", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the summary of all answers, and read the baseline."""
    config.addinivalue_line("markers", MARKER)
    if not hasattr(config, "workerinput"):  # xdist's workers report to this process
        config.pluginmanager.register(_Summary(config))


def _live_url(config: pytest.Config) -> str:
    return str(config.getoption("--rtvi-url") or os.environ.get("RTVI_URL") or config.getini("rtvi_url") or "")


def _transport(name: str) -> str:
    from rtvi_sync.client.candidates import TransportName

    if name not in (names := get_args(TransportName)):
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(names)}")
    return name


def _header(line: str) -> tuple[str, str]:
    name, colon, value = (part.strip() for part in line.partition(":"))
    from rtvi_sync.protocol.validation import OWN_HEADERS, headers_fault

    if not colon or headers_fault({name: value}, OWN_HEADERS):  # without the line, which may hold a key
        raise argparse.ArgumentTypeError("a header looks like this: 'Authorization: Bearer ...', in ASCII")
    return name, value


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < math.inf:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")


def _marked(item: pytest.Item) -> dict[str, Any]:
    """Return the options of a test's markers; the nearest marker wins."""
    options: dict[str, Any] = {}
    for marker in reversed([*item.iter_markers("rtvi")]):
        if marker.args:
            pytest.fail(f"the marker rtvi takes only keyword arguments, not {marker.args!r}", pytrace=False)
        options.update(marker.kwargs)
    if not isinstance(options.get("live"), bool | None):
        pytest.fail(f"live of the marker rtvi must be True or False, not {options['live']!r}", pytrace=False)
    if options.keys() - _NOT_OF_THE_BOT:
        from rtvi_sync.testing import EmbeddedBot

        known = [*_NOT_OF_THE_BOT, *inspect.signature(EmbeddedBot).parameters]
        for name in options.keys() - known:
            near = difflib.get_close_matches(name, known, 1)
            all_of_them = f": it takes {', '.join(_NOT_OF_THE_BOT)}, and those of EmbeddedBot"
            hint = f"; the nearest is {near[0]!r}" if near else all_of_them
            pytest.fail(f"the marker rtvi has no option {name!r}{hint}", pytrace=False)
    return options


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need the other kind of bot."""
    live = _marked(item).get("live")
    if live is True and not _live_url(item.config):
        pytest.skip("needs a live bot: pass --rtvi-url")
    if live is False and _live_url(item.config):
        pytest.skip("needs the embedded bot: it runs without --rtvi-url")


# -- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def rtvi_bot(request: pytest.FixtureRequest) -> Iterator[EmbeddedBot]:
    """Return the embedded bot with the marker's options: `@pytest.mark.rtvi(replies="Hi")`. Skip with --rtvi-url.

    The bot is an `EmbeddedBot`, and takes its options.
    """
    if _live_url(request.config):
        pytest.skip("needs the embedded bot: it runs without --rtvi-url")
    from rtvi_sync.testing import EmbeddedBot

    options = {name: value for name, value in _marked(request.node).items() if name not in _NOT_OF_THE_BOT}
    with EmbeddedBot(**options) as bot:
        before = _in_use()
        yield bot
        if left := _left_by_test(before):  # before the bot stops, which ends its sessions
            pytest.fail(left, pytrace=False)


def _scope_of_url(fixture_name: str, config: pytest.Config) -> Literal["session", "function"]:  # noqa: ARG001 - pytest's
    return "session" if _live_url(config) else "function"  # each test's marker makes its own embedded bot


@pytest.fixture(scope=_scope_of_url)
def rtvi_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of the bot under test: from --rtvi-url, RTVI_URL or the ini file, otherwise the embedded bot's."""
    url = _live_url(request.config)
    if url:
        return url
    bot: EmbeddedBot = request.getfixturevalue("rtvi_bot")
    return bot.base_url


@pytest.fixture
def rtvi_connect(request: pytest.FixtureRequest, rtvi_url: str) -> Iterator[Callable[..., RTVIClient]]:
    """Return a function that connects a client to the bot under test: `rtvi_connect(mic=Path("voice.wav"))`.

    It takes the options of `RTVIClient`, `token` and `headers`. Microphone and speaker are off by default. After the
    test, the clients are closed. The test fails if an assertion in a handler failed, if an answer exceeds
    --rtvi-latency-budget, or if something is left: a session, a source or sink in use, or a thread that still runs a
    handler or a source.
    """
    config, marked = request.config, _marked(request.node)
    # Only of this run of the test: plugins that repeat a test reuse its item.
    clients = request.node.stash[_clients] = []
    recordings = request.node.stash[_recordings] = []
    not_connected: list[RTVIError] = []
    request.node.stash[_not_connected] = not_connected
    request.node.stash[_has_failed] = False
    failures: list[HandlerError] = []
    before = _in_use()

    def connect(**options: Any) -> RTVIClient:
        with _noted(not_connected):
            seconds = config.getoption("--rtvi-timeout")
            way = config.getoption("--rtvi-transport") or config.getini("rtvi_transport")
            if way == "webrtc" and not _live_url(config):
                way = "auto"  # the embedded bot has no WebRTC
            given = _with_defaults({"transport": way, **marked.get("client", {}), **options}, seconds)
            if _live_url(config):
                from rtvi_sync.net.urls import merged_headers

                headers = merged_headers(dict(config.getoption("--rtvi-header")), given.get("headers") or {})
                given = {"token": config.getoption("--rtvi-token"), **given, "headers": headers}
            client = _client_class(seconds).for_url(rtvi_url, **given)
            if "connect" in marked:
                client.params.request_data = marked["connect"]
            _turns_of(client)  # starts the turn tracker, so that turns have audio, and latencies measured by it
            clients.append(client)
            if (folder := _folder(config)) is not None:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / _recording_name(request.node.nodeid, len(clients))
                recordings.append(client.record(path, overwrite=True))
            client.on("handler_error", failures.append)
            client.on("reconnecting", lambda: client.once("connected", lambda: _ask_for_calls(client)))
            client.connect()
            return client

    yield connect
    del request.node.stash[_clients]  # the stash lives as long as pytest, and clients keep their turns with audio
    has_failed = request.node.stash[_has_failed]
    # The report of a failed test has the latency, and a late answer is one failure.
    late = "" if has_failed else _late_answer(clients, config.getoption("--rtvi-latency-budget"))
    if not has_failed and (why := _raised(failures) or late):
        _mark_failure(recordings, why.partition("\n")[0])  # while they still run
    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.callback(client.close)
    left = _left_by_test(before) if _live_url(config) else ""  # an embedded bot checks when it ends
    why = left or _raised(failures) or late
    if has_failed or why:
        _write_pages(recordings)
    if why:
        pytest.fail(why, pytrace=False)


@contextlib.contextmanager
def _noted(errors: list[RTVIError]) -> Iterator[None]:
    """Add this package's error that the block raises."""
    from rtvi_sync import RTVIError

    try:
        yield
    except RTVIError as error:
        errors.append(error)
        raise


@pytest.fixture
def rtvi_client(rtvi_connect: Callable[..., RTVIClient]) -> RTVIClient:
    """Return a client connected to the bot under test: `rtvi_client.ask("Hello").expect(contains="Hi")`.

    The marker sets its options, as in `@pytest.mark.rtvi(client={"text_only": True})`. It is closed after the test. For
    several clients, use `rtvi_connect`.
    """
    return rtvi_connect()


def _with_defaults(options: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return options with defaults: no device of the machine, and limited waits for the bot."""
    devices = {} if options.get("text_only") else {"mic": False, "speaker": False}
    limit = {} if "timeout" in options else {"connect_timeout": seconds}
    return {**devices, **limit, **options}


def _client_class(seconds: float) -> type[RTVIClient]:
    from rtvi_sync import RTVIClient

    class Client(RTVIClient):
        """A client whose blocking calls have the limit of --rtvi-timeout, and whose bot reports its function calls."""

        def connect(self, connection_params: Any = None) -> BotReadyData:
            ready = super().connect(connection_params)
            _ask_for_calls(self)
            return ready

        def start_bot_and_connect(self, *request: Any, **options: Any) -> BotReadyData:
            ready = super().start_bot_and_connect(*request, **options)
            _ask_for_calls(self)
            return ready

        def ask(self, question: Any, timeout: float | None = seconds, **options: Any) -> Turn:
            return super().ask(question, timeout, **options)

        def listen(self, timeout: float | None = seconds, **options: Any) -> Turn:
            return super().listen(timeout, **options)

        def expect(self, within: float = seconds) -> Any:
            return super().expect(within)

    return Client


def _ask_for_calls(client: RTVIClient) -> None:
    """Ask the bot to report calls with names, arguments and results, which the eval route supports."""
    from rtvi_sync import DisconnectedError, EvalTransport

    if isinstance(client.transport, EvalTransport):
        with contextlib.suppress(DisconnectedError):  # the next call reports why the session ended
            client.transport.configure("full")


def _folder(config: pytest.Config) -> Path | None:
    """Return the folder for recordings; None for no recordings."""
    every, failed = config.getoption("--rtvi-record"), config.getoption("--rtvi-record-failed")
    folder = every or failed or config.getini("rtvi_record_failed")
    return config.rootpath / folder if folder else None


def _rows_of(recordings: list[RecordingSession]) -> list[Path]:
    return [path for recording in recordings for path in recording.paths if path.suffix == ".jsonl"]


def _page_of(rows: Path) -> Path:
    return rows.with_suffix(".html")


def _write_pages(recordings: list[RecordingSession]) -> None:
    """Write the page of each recording, which is complete now. The test's report has already named it."""
    from rtvi_sync import Recording

    for rows in _rows_of(recordings):
        Recording.load(rows).report(_page_of(rows))


def _recording_name(nodeid: str, number: int) -> str:
    """Return a unique name for the recording of a test's client."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    whole = re.sub(r"[/:]+", "_", nodeid)
    name = re.sub(r"[^\w.\[\]-]+", "_", whole, flags=re.ASCII)[-_MAX_NAME:]
    # A hash of the parts that the name doesn't show, such as a question mark, or the start of a long one.
    rest = f"{zlib.crc32(nodeid.encode(errors='replace')):08x}" if name != whole else None
    parts = (name, rest, worker, str(number))
    return "-".join(filter(None, parts))


def _in_use() -> dict[object, str]:
    """Return descriptions of everything in use in this process: sessions, sources, sinks, and busy threads."""
    from rtvi_sync.concurrency.lifecycle import live_objects, stop_idle_threads
    from rtvi_sync.media.leases import Lease
    from rtvi_sync.session.session import Session

    sessions = [each for each in live_objects() if isinstance(each, Session)]
    stop_idle_threads()
    # Threads of the runtime start and end during sessions. Threads of embedded bots belong to the bots.
    others = ("rtvi-bot-", "rtvi-idle-", *(("rtvi-worker-", "rtvi-timer-") if sessions else ()))
    threads = (each for each in threading.enumerate() if each.name.startswith("rtvi-"))
    return {
        **{
            # By client, because a client shared by several tests may reconnect.
            each.media: f"session {each.number} of the client with the {each.transport.name} transport is live: "
            "disconnect it"
            for each in sessions
        },
        **{id(each): f"a {type(each).__name__} is in use: disconnect its client" for each in Lease.leased()},
        **{each: f"{each.name} runs {_place_of(each)}" for each in threads if not each.name.startswith(others)},
    }


def _place_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{frame.f_code.co_name}() in {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def _left(before: Collection[object]) -> list[str]:
    """Return descriptions of everything in use that was not before. Waits for threads that are about to end."""
    from rtvi_sync.concurrency.clock import monotonic

    deadline = monotonic() + _ENDING
    while True:
        left = {key: words for key, words in _in_use().items() if key not in before}
        ending = [key for key in left if isinstance(key, threading.Thread)]
        if len(ending) < len(left) or not ending or monotonic() >= deadline:
            return [*left.values()]
        ending[0].join(0.05)


def _left_by_test(before: Collection[object]) -> str:
    """Return what a test has left in use, as the reason of its failure; "": nothing."""
    return f"left by the test: {'; '.join(left)}" if (left := _left(before)) else ""


def _turns_of(client: RTVIClient) -> tuple[Turn, ...]:
    """Return the client's turns; none if it doesn't track them."""
    return client.turns() if client._life.conversation is not None else ()


def _raised(failures: list[HandlerError]) -> str:
    """Return the failed assertion of a handler, its reason in the first line, or "".

    Other errors of handlers may be intended by the test.
    """
    for failure in failures:
        if isinstance(failure.error, (AssertionError, pytest.fail.Exception)):
            error = " ".join("".join(traceback.format_exception_only(failure.error)).split())[:_MAX_WHY]
            told = "".join(traceback.format_exception(failure.error))
            return f"a handler of {failure.event.type.value!r} raised {error}\n{told}"
    return ""


def _late_answer(clients: list[RTVIClient], budget: float | None) -> str:
    """Return which answer is the first over the budget, in a line, and its timeline; "": none."""
    if budget is None:
        return ""
    for client in clients:
        for turn in _turns_of(client):
            seconds = turn.time_to_first_audio
            if seconds is not None and seconds > budget:
                return (
                    f"the first audio of turn {turn.number} came after {seconds:.3f} s; the latency budget is "
                    f"{budget:g} s\n{_timeline([turn])}"
                )
    return ""


# -- scenario files ---------------------------------------------------------------------------------------------------


def _collects_scenarios(config: pytest.Config) -> bool:
    return bool(config.getoption("--rtvi-scenarios") or config.getini("rtvi_scenarios"))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect scenario files, if the options ask for it."""
    if file_path.suffix != ".yaml" or not _collects_scenarios(parent.config):
        return None
    from rtvi_sync.testing.pytest_scenarios import PATTERNS, ScenarioFile

    if not any(map(file_path.match, PATTERNS)):
        return None
    file = ScenarioFile.from_parent(parent, path=file_path)
    file.run_scenario = _run_scenario
    return file


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Name the option that collects scenario files, if pytest has found no test in one."""
    if exitstatus != pytest.ExitCode.USAGE_ERROR or _collects_scenarios(config):
        return
    from rtvi_sync.testing.pytest_scenarios import PATTERNS

    paths = [Path(argument.partition("::")[0]) for argument in config.args]
    if any(path.match(pattern) for path in paths for pattern in PATTERNS):
        terminalreporter.write_line("rtvi: scenario files need --rtvi-scenarios, or rtvi_scenarios = true (ini)")


def _run_scenario(item: pytest.Item, url: str, scenario: Scenario, hooks: dict[str, Any]) -> ScenarioResult:
    """Run a scenario by the options of pytest, and name its recording in the report."""
    from rtvi_sync.testing.scenarios.hooks import Hooks
    from rtvi_sync.testing.scenarios.run import PATIENCE, RunOptions, ScenarioRun, patience_after

    config = item.config
    live = {"token": config.getoption("--rtvi-token"), "headers": dict(config.getoption("--rtvi-header")) or None}
    way = config.getoption("--rtvi-transport") or config.getini("rtvi_transport")
    path = None
    if (folder := _folder(config)) is not None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _recording_name(item.nodeid, 1)
    options = RunOptions(
        transport="auto" if way == "webrtc" and not _live_url(config) else way,  # the embedded bot has no WebRTC
        timeout=config.getoption("--rtvi-timeout"),
        connect_timeout=config.getoption("--rtvi-timeout"),
        record=path,
        **(live if _live_url(config) else {}),
    )
    patience = config.stash.get(_patience, PATIENCE)
    result = ScenarioRun(scenario, url, Hooks(**hooks), options, patience).run()
    config.stash[_patience] = patience_after(result)
    if path is None:
        item.add_report_section("call", "rtvi recording", _NOT_RECORDED)
        return result
    kept = sorted(each for each in path.parent.iterdir() if each.name.startswith(f"{path.name}."))
    if result.verdict == "failed" or config.getoption("--rtvi-record"):
        item.add_report_section("call", "rtvi recording", "\n".join(map(str, kept)))
        item.user_properties += [(_RECORDING, str(each)) for each in kept]
    else:
        for each in kept:
            each.unlink(missing_ok=True)
    return result


@pytest.fixture(scope="session")
def rtvi_judge() -> Any:
    """Return the judge of scenario files: a function (question, answer, criterion). Override it; None: no judging."""
    return None


@pytest.fixture(scope="session")
def rtvi_tts() -> Any:
    """Return the speech maker of scenario files: a function (text). Override it; None skips spoken scenarios."""
    return None


@pytest.fixture(scope="session")
def rtvi_transcribe() -> Any:
    """Return the transcriber of scenario files: a function (pcm, sample_rate_hz). Override it; None skips those."""
    return None


@pytest.fixture(scope="session")
def rtvi_next_line() -> Any:
    """Return the player of simulated callers: a function (turns, simulation). Override it; None skips those."""
    return None


# -- reports ----------------------------------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)  # the newer kind of wrapper needs pluggy 1.2
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Add the timeline of the last turns to the report of a failed test, and the latencies to every report.

    A turn that the error itself shows is not repeated. If no bot was reached, the report is one line. If a test needs
    messages over a transport without messages, such as a telephone call, it is skipped.
    """
    with _without_inside(call, item) as is_inside:
        outcome = yield
    report = outcome.get_result()
    if is_inside:
        del getattr(report.longrepr, "chain", [])[:-1]  # the causes
    clients = item.stash.get(_clients, [])
    if call.excinfo is not None:
        _shorten(report, call, item, clients)
    if call.when == "call" and clients:
        turns = [turn for client in clients for turn in _turns_of(client)]
        if report.failed:
            _describe_failure(item, call.excinfo.value if call.excinfo is not None else None, report, turns)
        # Replaces earlier answers: of a subtest, which reports the turns so far, or of a repeated run. JUnit XML takes
        # them from the report of the teardown.
        figures = [(_TURNS, len(turns)), *_latencies(turns)]
        for properties in (item.user_properties, report.user_properties):
            properties[:] = [*(pair for pair in properties if pair[0] not in _FIGURES), *figures]
        setattr(report, _ANSWERS, [(_door(client), _plain(_turns_of(client))) for client in clients])
    if report.failed:
        if call.when == "teardown" and not item.stash.get(_has_failed, True):
            _name_recordings(item, report)
        item.stash[_has_failed] = True
    if call.when == "teardown" and not (item.stash.get(_has_failed, True) or item.config.getoption("--rtvi-record")):
        _remove(item.stash.get(_recordings, []))


@contextlib.contextmanager
def _without_inside(call: pytest.CallInfo[None], item: pytest.Item) -> Iterator[bool]:
    """Hide the frames inside this package in which an error of its own was raised: its text has all a user needs.

    Yields:
        Whether its causes were raised inside, too.
    """
    errors = sys.modules.get("rtvi_sync.errors")
    error = call.excinfo.value if call.excinfo is not None else None
    if errors is None or not isinstance(error, errors.RTVIError) or item.config.getoption("fulltrace"):
        yield False
        return
    steps, step = [], error.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    while steps and _is_inside(steps[-1].tb_frame.f_code.co_filename):
        steps.pop()
    if not steps:
        yield False
        return
    last, inside = steps[-1], steps[-1].tb_next
    last.tb_next = None
    try:
        frames = [frame for cause in _causes_of(error) for frame, _ in traceback.walk_tb(cause.__traceback__)]
        yield all(_is_inside(frame.f_code.co_filename) for frame in frames)
    finally:
        last.tb_next = inside  # debuggers go on with it


def _is_inside(path: str | Path) -> bool:
    """Return whether a file is this package's, or one of Python that it uses."""
    folders = Path(path).parents
    return _PACKAGE in folders or (_PYTHON in folders and "site-packages" not in Path(path).parts)


def _causes_of(error: BaseException) -> Iterator[BaseException]:
    seen = {id(error)}
    while (cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__)) is not None:
        if id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        error = cause


def _shorten(
    report: pytest.TestReport, call: pytest.CallInfo[None], item: pytest.Item, clients: list[RTVIClient]
) -> None:
    """Report unreached bots in one line, without frames of this package; skip tests that the transport can't run."""
    assert call.excinfo is not None, "the caller checks this"
    cannot = report.failed and _needs_messages(call.excinfo.value, clients)
    if cannot or (report.skipped and getattr(item, "is_scenario", False)):
        path, line, _ = item.reportinfo()  # a scenario's line; otherwise pytest would show the plugin's line
        report.outcome, report.longrepr = "skipped", (str(path), (line or 0) + 1, f"Skipped: {call.excinfo.value}")
    elif report.failed and (shown := _in_a_line(call, item)) is not None:
        report.longrepr = shown


def _in_a_line(call: pytest.CallInfo[None], item: pytest.Item) -> Any:
    """Return the one-line form of an unreached bot's error, without frames and causes inside this package.

    None if the test failed by another error, or pytest must show all frames.
    """
    error = call.excinfo
    is_ours = error is not None and any(each is error.value for each in item.stash.get(_not_connected, ()))
    if error is None or not is_ours or item.config.getoption("fulltrace"):
        return None
    lines = error.traceback.filter(lambda entry: entry.path == item.path)
    if not lines:  # a fixture connected
        return error.getrepr(style="no", tbfilter=lambda each: each.traceback[-1:], chain=False)
    return error.getrepr(style="short", tbfilter=lambda _: lines, chain=False)


def _needs_messages(error: BaseException, clients: list[RTVIClient]) -> bool:
    """Return whether a test failed because the transport of a client carries no messages."""
    return getattr(error, "feature", None) == "messages" and any(
        client.transport is not None and not client.transport.carries_messages for client in clients
    )


def _describe_failure(
    item: pytest.Item, error: BaseException | None, report: pytest.TestReport, turns: list[Turn]
) -> None:
    """Add the last turns and the recordings to the report of a failed test, and its error to the recordings."""
    shown = str(getattr(error, "timeline", ""))
    others = [turn for turn in turns[-_MAX_TURNS:] if _timeline([turn]) not in shown]
    if others or not turns:
        report.sections.append(("rtvi timeline", _timeline(others) or "no turn was begun"))
    _mark_failure(item.stash[_recordings], _why(error))
    _name_recordings(item, report)


def _remove(recordings: list[RecordingSession]) -> None:
    for recording in recordings:
        for path in recording.paths:
            path.unlink(missing_ok=True)


def _mark_failure(recordings: list[RecordingSession], why: str) -> None:
    """Put the reason of a test's failure into its recordings, which run."""
    from rtvi_sync.protocol.recording_rows import TEST_FAILED

    for recording in recordings:
        recording.mark(f"{TEST_FAILED}{why}")


def _name_recordings(item: pytest.Item, report: pytest.TestReport) -> None:
    """Name the recordings in the report of a failed test, and in its properties: the pages first."""
    recordings = item.stash[_recordings]
    pages = [*map(_page_of, _rows_of(recordings))]
    if report.when == "teardown":  # those of a test whose embedded bot has found what is left are not written
        pages = [page for page in pages if page.exists()]
    kept = [path for recording in recordings for path in recording.paths]
    paths = [str(path) for path in (*pages, *kept)]
    report.sections.append(("rtvi recording", "\n".join(paths) or _NOT_RECORDED))
    for properties in (item.user_properties, report.user_properties):
        properties[:] = [*(pair for pair in properties if pair[0] != _RECORDING)]
        properties += [(_RECORDING, path) for path in paths]


def _why(error: BaseException | None) -> str:
    """Return a line on why a test failed: the expectation and its turn, or the start of the error."""
    if error is None:
        return "see its report"
    turn = getattr(error, "turn", None)
    where = f"turn {turn.number}: " if turn is not None else ""
    text = str(error).removesuffix(str(getattr(error, "timeline", ""))) or type(error).__name__
    return f"{where}{' '.join(text[:_MAX_WHY].split())}"


def _latencies(turns: list[Turn]) -> Iterator[tuple[str, float]]:
    for turn in turns:
        for name, shown in _LATENCIES.items():
            seconds = getattr(turn, name)
            if seconds is not None:
                yield shown, round(seconds, 4)


def _timeline(turns: list[Turn]) -> str:
    from rtvi_sync.conversation.turn import timeline_of

    return "\n".join(timeline_of(turn) for turn in turns)


def _door(client: RTVIClient) -> str:
    return client.transport.name if client.transport is not None else ""


def _plain(turns: Iterable[Turn]) -> list[tuple[Any, ...]]:
    """Return the values of turns for the summary, as plain data that xdist can send."""
    import attrs

    from rtvi_sync.recording.percentiles import ComparedTurn

    return [attrs.astuple(ComparedTurn.of(turn)) for turn in turns]


class _Summary:
    """The answers of all tests, their percentiles, and the comparison with a baseline.

    Raises:
        pytest.UsageError: The folder of the baseline has no recordings.
    """

    def __init__(self, config: pytest.Config) -> None:
        folder = config.getoption("--rtvi-baseline")
        self._baseline = _recorded(config, config.rootpath / folder) if folder else None
        self._name = folder
        self._comparison: Comparison | None = None
        # By test, the answers to each client, with its transport's name. Reports of subtests and repeated runs precede
        # the last one.
        self._of_tests: dict[str, list[tuple[str, list[tuple[Any, ...]]]]] = {}

    @property
    def _answers(self) -> list[tuple[str, str, ComparedTurn]]:
        """All answers, each with its test and its transport."""
        from rtvi_sync.recording.percentiles import ComparedTurn

        return [
            (test, transport, ComparedTurn(*each))
            for test, clients in self._of_tests.items()
            for transport, plain in clients
            for each in plain
        ]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the answers of a test."""
        if (answers := getattr(report, _ANSWERS, None)) is not None:
            self._of_tests[report.nodeid] = answers

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if it was slower than the baseline."""
        if self._baseline is None or not self._of_tests:
            return
        from rtvi_sync.recording.compare import compare

        self._comparison = compare(self._baseline, [answer for *_, answer in self._answers])
        if self._comparison.is_slower and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the number of turns, their latencies, and the comparison."""
        if not self._of_tests:
            return
        from rtvi_sync.recording.percentiles import percentiles_of

        answers = self._answers
        words = [f"{len(answers)} turns"]
        for measure, of in percentiles_of([answer for *_, answer in answers]).items():
            if measure in _LATENCIES and of.count:
                where = next(test for test, _, answer in answers if getattr(answer, measure) == of.max)
                words.append(
                    f"{_LATENCIES[measure].removeprefix('rtvi_').replace('_', ' ')} p50 {of.p50:.3f} s, "
                    f"p95 {of.p95:.3f} s, slowest {of.max:.3f} s ({where})"
                )
        terminalreporter.write_line(f"rtvi: {'; '.join(words)}")
        self._write_transports(terminalreporter, answers)
        if self._comparison is not None:
            self._write_comparison(terminalreporter, self._comparison)

    @staticmethod
    def _write_transports(
        terminalreporter: pytest.TerminalReporter, answers: list[tuple[str, str, ComparedTurn]]
    ) -> None:
        """Write the median latencies of each transport, if the tests used several."""
        from rtvi_sync.recording.percentiles import percentiles_of
        from rtvi_sync.recording.tables import columns

        by_transport: dict[str, list[ComparedTurn]] = {}
        for _, transport, answer in answers:
            by_transport.setdefault(transport, []).append(answer)
        if len(by_transport) < 2:
            return
        rows = []
        for transport, turns in by_transport.items():
            found = percentiles_of(turns)
            medians = (found[measure].p50 for measure in _LATENCIES)
            rows.append([transport, str(len(turns)), *("" if p50 is None else f"{p50:.3f} s" for p50 in medians)])
        head = ["median by", "turns", *(shown.removeprefix("rtvi_").replace("_", " ") for shown in _LATENCIES.values())]
        for line in columns(head, rows, 1):
            terminalreporter.write_line(f"rtvi: {line}")

    def _write_comparison(self, terminalreporter: pytest.TerminalReporter, comparison: Comparison) -> None:
        from rtvi_sync.protocol.text import clean
        from rtvi_sync.recording.summary import (
            CHANGES,
            NOT_JUDGED,
            change_rows,
            left_out_in_words,
            slower_in_words,
        )
        from rtvi_sync.recording.tables import columns

        terminalreporter.write_line(f"rtvi: compared with {self._name}:")
        for line in (*columns(CHANGES, change_rows(comparison), 2), *map(clean, left_out_in_words(comparison))):
            terminalreporter.write_line(line)
        if comparison.is_in_part:
            terminalreporter.write_line(NOT_JUDGED, yellow=True)
        if comparison.is_slower:
            line = f"rtvi: FAILED, slower than {self._name}: {slower_in_words(comparison)}"
            terminalreporter.write_line(line, red=True)


def _recorded(config: pytest.Config, folder: Path) -> list[ComparedTurn]:
    """Return the answers in the recordings of a folder.

    Raises:
        pytest.UsageError: The folder has none, or this run will record into it.
    """
    from rtvi_sync import Recording
    from rtvi_sync.recording.percentiles import ComparedTurn

    kept = _folder(config)
    if kept is not None and (kept.is_relative_to(folder) or folder.is_relative_to(kept)):
        raise pytest.UsageError(f"--rtvi-baseline: this run records into {folder} itself; give each a folder")
    try:
        recordings = Recording.load_all(folder)
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--rtvi-baseline: {error}") from None
    if not recordings:
        raise pytest.UsageError(f"--rtvi-baseline: there is no recording in {folder}; --rtvi-record DIR makes them")
    return [ComparedTurn.of(turn) for recording in recordings for turn in recording.turns()]
