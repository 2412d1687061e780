"""The plugin of pytest, in separate runs of pytest."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import pytest

from rtvi_sync import Recording
from rtvi_sync.testing import EmbeddedBot
from tests.support.processes import free_port, run_pytest
from tests.support.recordings import Script
from tests.support.slowness import GUARD
from tests.support.warm import WARM_PYTEST

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs pytest on a test file, with the plugin and the options given."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("RTVI_URL", raising=False)

    def run_on(code: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(code)
        plugin = ("-p", "rtvi_sync.testing.pytest_plugin", "--strict-markers", "-W", "error")
        if "-n" in options:
            return pytester.runpytest_subprocess(*plugin, *WARM_PYTEST, *options, timeout=4 * GUARD)
        status, out, err = run_pytest(*plugin, *options, folder=pytester.path)
        return pytest.RunResult(status, out.splitlines(), err.splitlines(), 0.0)

    return run_on


@pytest.mark.matrix
def test_where_the_package_is_installed(
    run: Run, pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-p` may name the plugin although pytest finds it by its entry point, as `samples/bot_test` does."""
    declared = (ROOT / "pyproject.toml").read_text("utf-8")
    section = declared.split("[project.entry-points.pytest11]")[1].split("\n[")[0]
    info = tmp_path / "installed" / "rtvi_sync-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rtvi_sync\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]" + section.replace('"', ""))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{info.parent}")
    run(ASKS).assert_outcomes(passed=1)
    run(ASKS, "-n", "1").assert_outcomes(passed=1)
    shown = [
        pytester.runpytest_subprocess(*options, "--help").stdout.str()
        for options in ((), ("-p", "no:rtvi_sync.testing.pytest_plugin"))
    ]
    assert ["--rtvi-url" in text for text in shown] == [True, False]


ASKS = """
def test_it(rtvi_client):
    rtvi_client.ask("Hello").expect(contains="Hello", first_audio=60)
"""


def test_a_scripted_bot(run: Run) -> None:
    """Without a URL the fixtures connect to an EmbeddedBot with the options of the marker."""
    result = run("""
        import pytest

        @pytest.mark.rtvi(replies="It rains.", client={"text_only": True})
        def test_reply(rtvi_client, rtvi_bot, rtvi_url):
            assert rtvi_url == rtvi_bot.base_url
            rtvi_client.ask("Weather?").expect(contains="It rains.")

        @pytest.mark.rtvi(version="0.3.0")
        def test_version(rtvi_connect):
            first, second = rtvi_connect(), rtvi_connect(text_only=True)
            assert "Hello" in first.ask("Hello").bot_text
            assert "Two" in second.ask("Two").bot_text
        """)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["rtvi: 3 turns; first audio p50 * s, p95 * s, slowest * s (*)"])


def test_the_list_of_fixtures(run: Run) -> None:
    """The list of fixtures says how each is used."""
    lines = run("", "--fixtures").stdout.lines
    shown = {line.split()[0]: after.strip() for line, after in pairwise(lines) if line.startswith("rtvi_")}
    hooks = {name: shown.pop(name) for name in ("rtvi_judge", "rtvi_next_line", "rtvi_transcribe", "rtvi_tts")}
    assert all("Override it" in text for text in hooks.values())
    assert shown == {
        "rtvi_bot": "Return the embedded bot with the marker's options: "
        '`@pytest.mark.rtvi(replies="Hi")`. Skip with --rtvi-url.',
        "rtvi_url": "Return the URL of the bot under test: "
        "from --rtvi-url, RTVI_URL or the ini file, otherwise the embedded bot's.",
        "rtvi_connect": "Return a function that connects a client to the bot under test: "
        '`rtvi_connect(mic=Path("voice.wav"))`.',
        "rtvi_client": "Return a client connected to the bot under test: "
        '`rtvi_client.ask("Hello").expect(contains="Hi")`.',
    }


def test_the_scripted_bot_of_the_page(run: Run) -> None:
    """The test in docs/guides/testing-bots.md passes, and the one for a live bot is skipped."""
    page = (ROOT / "docs" / "guides" / "testing-bots.md").read_text("utf-8")
    block = page.partition("# test_scripted.py\n")[2].partition("```")[0]
    run(block).assert_outcomes(passed=1, skipped=1)


def test_the_report_of_a_failure(run: Run) -> None:
    """The report of a failure shows the expectation, and the timeline once."""
    result = run("""
        def test_it(rtvi_client):
            rtvi_client.ask("Hello").expect(contains="Goodbye")
        """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*ExpectationError: expected the bot to say 'Goodbye'",
            "*but it said 'You said: Hello'  [[]text_mismatch]",
            "*turn 1, RTVI 2.2.0, rtvi_sync.testing *",
            '*0.000  you   "Hello" (typed)',
        ]
    )
    result.stdout.no_fnmatch_line("*- rtvi timeline -*")


def test_a_bot_that_is_not_reached_is_told_in_a_line(run: Run) -> None:
    """The error, the word that explains it, and the line of the test; no line of this package, and no causes."""
    code = """
        def test_by_the_fixture(rtvi_client):
            pass

        def test_by_itself(rtvi_connect):
            rtvi_connect()
        """
    url = f"http://127.0.0.1:{free_port()}/start"
    result = run(code, "--rtvi-url", url)
    result.assert_outcomes(errors=1, failed=1)
    refused = f"E *StartBotError: The request to {url} failed: *refused*"
    note = ["*See: rtvi-sync explain no-server"] if sys.version_info >= (3, 11) else []
    result.stdout.fnmatch_lines(["*ERROR at setup of *", refused, *note, "*= FAILURES =*"], consecutive=True)
    result.stdout.fnmatch_lines(["*.py:5: in test_by_itself", "    rtvi_connect()", refused], consecutive=True)
    result.stdout.no_fnmatch_line("*direct cause*")
    run(code, "--rtvi-url", url, "--full-trace").stdout.fnmatch_lines(["*direct cause*"])


def test_the_timeline_of_turns_that_the_error_does_not_show(run: Run) -> None:
    """The report of another failure has the timeline of the last turns."""
    result = run("""
        def test_it(rtvi_client):
            assert rtvi_client.ask("Hello").bot_text == "Goodbye"
        """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- rtvi timeline -*", '*0.000  you   "Hello" (typed)'])


def test_the_traceback_of_a_failure(run: Run) -> None:
    """The traceback of a failure ends at the line of the test, unless pytest's --full-trace is given."""
    code = """
        def test_turn(rtvi_client):
            rtvi_client.ask("Hello").expect(contains="Goodbye")

        def test_block(rtvi_client):
            with rtvi_client.expect(within=0.01) as expect:
                expect.text("Goodbye")

        def test_time_out(rtvi_client):
            rtvi_client.ask("Hello", timeout=0.001)
        """
    result = run(code)
    result.assert_outcomes(failed=3)
    result.stdout.no_fnmatch_line("*rtvi_sync/*.py:*")
    result.stdout.fnmatch_lines(["*.py:2: ExpectationError", "*.py:6: ExpectationError", "*.py:9: RequestTimeoutError"])
    run(code, "--full-trace").stdout.fnmatch_lines(["*rtvi_sync/conversation/expect.py:*"])


def test_a_live_bot(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --rtvi-url, the variable or the ini file the same tests run against that bot, as far as they may."""
    code = """
        import pytest

        def test_it(rtvi_client, rtvi_url):
            rtvi_client.ask("Hello").expect(contains="from afar")

        @pytest.mark.rtvi(live=True)
        def test_live(rtvi_client):
            rtvi_client.ask("Hello").expect(contains="from afar")

        @pytest.mark.rtvi(live=False)
        def test_scripted(rtvi_client):
            assert False

        def test_bot(rtvi_bot):
            assert False
        """
    with EmbeddedBot(replies="Greetings from afar.", headers={"X-Key": "abc"}) as bot:
        with_key = "--rtvi-header", "X-Key: abc"
        run(code, "--rtvi-url", bot.base_url, *with_key).assert_outcomes(passed=2, skipped=2)
        monkeypatch.setenv("RTVI_URL", bot.base_url)
        run(code, *with_key).assert_outcomes(passed=2, skipped=2)
        run(code).assert_outcomes(errors=2, skipped=2)  # 401
        monkeypatch.delenv("RTVI_URL")
        run(code, "-o", f"rtvi_url={bot.base_url}", *with_key).assert_outcomes(passed=2, skipped=2)
    skipped = run(
        """
        import pytest

        @pytest.mark.rtvi(live=True)
        def test_live(rtvi_client):
            assert False
        """,
        "-rs",
    )
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.fnmatch_lines(["*needs a live bot: pass --rtvi-url*"])


def test_a_marker_that_is_neither(run: Run) -> None:
    """A value other than True and False is refused: it would let a test of a live bot run against the scripted one."""
    wrong = run(
        """
        import pytest

        @pytest.mark.rtvi(live=1)
        def test_live(rtvi_client):
            pass
        """
    )
    wrong.assert_outcomes(errors=1)
    wrong.stdout.fnmatch_lines(["*live of the marker rtvi must be True or False, not 1*"])


def test_the_url_of_a_live_bot_may_be_used_by_fixtures_of_the_session(run: Run) -> None:
    """The embedded bot is made for each test, so its URL lasts for one test."""
    code = """
        import pytest
        from rtvi_sync import connect

        @pytest.fixture(scope="session")
        def client(rtvi_url):
            with connect(rtvi_url, text_only=True) as client:
                yield client

        def test_one(client):
            client.ask("One").expect(contains="One")

        def test_two(client):
            assert client.ask("Two").number == 2

        def test_three(client):
            client.disconnect()
            client.connect()
        """
    with EmbeddedBot() as bot:
        run(code, "--rtvi-url", bot.base_url).assert_outcomes(passed=3)
    result = run(code)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["*ScopeMismatch: *function scoped fixture rtvi_url*"])


def test_the_limits(run: Run) -> None:
    """--rtvi-timeout is the default of ask(), and --rtvi-latency-budget fails a test whose bot is slow."""
    mute = """
        import pytest

        def is_text(session, message):
            return message["type"] == "send-text"

        @pytest.mark.rtvi(handler=is_text, client={"connect_timeout": 60})
        def test_it(rtvi_client):
            rtvi_client.ask("Hello")

        @pytest.mark.rtvi(ready=False, client={"transport": "websocket"})
        def test_connect(rtvi_client):
            pass
        """
    result = run(mute, "--rtvi-timeout", "0.5")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*ConnectionTimeoutError: *0.5 s*", "*RequestTimeoutError: *within 0.5 s*"])
    result = run(ASKS, "--rtvi-latency-budget", "0.000001")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the first audio of turn 1 came after * s; the latency budget is 1e-06 s*"])
    run(ASKS, "--rtvi-latency-budget", "600").assert_outcomes(passed=1)


def test_a_late_answer_is_one_failure(run: Run) -> None:
    """A test that has failed has no error by --rtvi-latency-budget in addition; the one after it is checked again."""
    code = """
        def test_late(rtvi_client):
            rtvi_client.ask("Hello").expect(first_audio=0.000001)

        def test_other(rtvi_client):
            rtvi_client.ask("Hello").expect(contains="Good bye")

        def test_slow(rtvi_client):
            rtvi_client.ask("Hello")
        """
    result = run(code, "--rtvi-latency-budget", "0.000001")
    result.assert_outcomes(failed=2, passed=1, errors=1)
    result.stdout.fnmatch_lines(["ERROR *::test_slow*"])


def test_errors_of_the_package_show_the_line_of_the_test(run: Run) -> None:
    """No frame and no cause inside the package is shown; an error that the test has caught before is."""
    code = """
        from pathlib import Path

        def load():
            raise KeyError("a fault of the test")

        def test_missing(rtvi_client):
            rtvi_client.ask(Path("nope.wav"))

        def test_cause(rtvi_client):
            try:
                load()
            except KeyError:
                rtvi_client.ask(Path("nope.wav"))
        """
    result = run(code)
    result.assert_outcomes(failed=2)
    shown = result.stdout.str()
    assert "    def __init__(" not in shown[: shown.index("_ test_cause _")]
    told = "Cannot read the audio file nope.wav: No such file or directory"
    result.stdout.fnmatch_lines(['>*rtvi_client.ask(Path("nope.wav"))', f"E *{told}"])
    result.stdout.fnmatch_lines(["*KeyError: 'a fault of the test'"])
    run(code, "--full-trace").stdout.fnmatch_lines(["*sources.py*"])


def test_what_is_left(run: Run) -> None:
    """A session, a source in use, a thread that does not end: each fails the test that has left it, by name."""
    result = run("""
        import threading

        from rtvi_sync import connect
        from rtvi_sync.media import SilenceSource
        from tests.support.part_probes import lease

        kept = []

        def test_session(rtvi_url):
            kept.append(connect(rtvi_url, text_only=True))

        def test_session_of_a_bot(rtvi_bot):
            kept.pop().close()
            kept.append(connect(rtvi_bot.base_url, text_only=True))

        def test_source(rtvi_client):
            kept.pop().close()
            kept.append(lease(SilenceSource(), "mic"))

        def test_thread(rtvi_client):
            kept.pop().release()
            threading.Thread(target=threading.Event().wait, name="rtvi-mic-1", daemon=True).start()

        def test_next(rtvi_client):
            pass
        """)
    result.assert_outcomes(passed=5, errors=4)
    result.stdout.fnmatch_lines(
        [
            "left by the test: session 1 of the client with the websocket transport is live: disconnect it",
            "left by the test: session 1 of the client with the websocket transport is live: disconnect it",
            "left by the test: a SilenceSource is in use: disconnect its client",
            "left by the test: rtvi-mic-1 runs wait() in *",
        ]
    )


def test_fixtures_of_the_application_with_these_names(run: Run) -> None:
    """Fixtures of the application with these names are used, and the environment that its fixtures set counts."""
    result = run("""
        import pytest

        class TestBot:
            @pytest.fixture
            def rtvi_bot(self):
                return "my own"

            def test_it(self, rtvi_bot):
                assert rtvi_bot == "my own"

        @pytest.fixture
        def my_bot(monkeypatch):
            monkeypatch.setenv("RTVI_URL", "http://127.0.0.1:9/mine")

        def test_url(my_bot, rtvi_url):
            assert rtvi_url.endswith("/mine")
        """)
    result.assert_outcomes(passed=2)


def test_what_handlers_raise(run: Run) -> None:
    """An assertion in a handler fails the test, with its traceback; the test may expect other errors."""
    result = run("""
        import pytest

        def fail(kind):
            raise kind("not this one")

        @pytest.mark.parametrize("kind", [AssertionError, KeyError])
        def test_handler(rtvi_client, kind):
            rtvi_client.on("bot-llm-started", lambda event: fail(kind))
            rtvi_client.ask("Hello")

        @pytest.mark.parametrize("kind", [AssertionError, KeyError])
        def test_function(rtvi_client, rtvi_bot, kind):
            rtvi_client.register_function_call_handler("look", lambda call: fail(kind))
            assert "error" in rtvi_bot.wait_for_session().call_function("look")
        """)
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(
        ["a handler of 'botLlmStarted' raised AssertionError: not this one", "*in fail", "AssertionError: not this one"]
    )


def test_calls_over_the_eval_route(run: Run) -> None:
    """A bot that reports no names reports them over the eval route, in each session that a client connects."""
    result = run("""
        import pytest
        from rtvi_sync import ReconnectPolicy
        from rtvi_sync.testing import Fault, Reply

        WEATHER = Reply("It rains.", call=("get_weather", {"city": "Oslo"}), result={"sky": 1}, report_level="none")
        CALL = {"get_weather": {"city": "Oslo"}}

        @pytest.mark.rtvi(replies=WEATHER, client={"transport": "eval", "text_only": True})
        def test_it(rtvi_client, rtvi_bot):
            rtvi_client.ask("Weather?").expect(calls=CALL)
            rtvi_client.disconnect()
            rtvi_client.start_bot_and_connect(f"{rtvi_bot.base_url}/start")
            rtvi_client.ask("Weather?").expect(calls=CALL)
            rtvi_client.transport.configure("none")
            assert rtvi_client.ask("Weather?").function_calls[0].function_name is None

        @pytest.mark.rtvi(replies=WEATHER, faults=[Fault("drop", 1)])
        def test_a_session_that_replaces_a_lost_one(rtvi_connect, rtvi_bot):
            client = rtvi_connect(transport="eval", text_only=True, reconnect=ReconnectPolicy(initial_delay=0.01))
            with client.events("connected", timeout=60) as connected:
                client.send_text("Weather?")
                next(connected)
            client.wait_until_ready(60)
            client.ask("Weather?").expect(calls=CALL)

        @pytest.mark.rtvi(replies=WEATHER)
        def test_another_transport(rtvi_client):
            assert rtvi_client.ask("Weather?").function_calls[0].function_name is None
        """)
    result.assert_outcomes(passed=3)


def test_the_token_and_the_marker(run: Run) -> None:
    """--rtvi-token is for the WebSocket; `connect` is the request data; transcripts and config are the bot's."""
    paths: list[str] = []
    with EmbeddedBot(handler=lambda session, _: paths.append(session.path)) as bot:
        run(ASKS, "--rtvi-url", bot.ws_url, "--rtvi-token", "secret").assert_outcomes(passed=1)
    assert paths[0].endswith("?token=secret")
    result = run("""
        import pytest
        from rtvi_sync.media import ToneSource

        @pytest.mark.rtvi(transcripts=["Is it noon?"], connect={"user": "Ann"}, version="0.3.0")
        def test_marker(rtvi_client, rtvi_bot):
            assert rtvi_bot.requests[-1].body["user"] == "Ann"
            assert rtvi_client.ask(ToneSource(440, 0.5)).expect(voice_to_voice=60).user_text == "Is it noon?"

        @pytest.mark.rtvi(config=[{"service": "llm", "options": [{"name": "mood", "value": "calm"}]}], version="0.3.0")
        def test_config(rtvi_client):
            assert rtvi_client.get_config()[0].options[0].value == "calm"
        """)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["rtvi: 1 turns; voice to voice p50 * s, *; first audio p50 *"])


def test_the_transport(run: Run, pytester: pytest.Pytester) -> None:
    """--rtvi-transport, or the ini file, names the transport, even for the embedded bot; the test's own wins."""
    code = """
        import pytest

        @pytest.mark.rtvi(live=True)
        def test_given(rtvi_client):
            assert rtvi_client.transport.name == "eval"

        @pytest.mark.rtvi(live=True)
        def test_own(rtvi_connect):
            assert rtvi_connect(transport="websocket").transport.name == "websocket"

        def test_usual(rtvi_client):
            assert rtvi_client.transport.name in ("eval", "twilio")
        """
    with EmbeddedBot() as bot:
        run(code, "--rtvi-url", bot.base_url, "--rtvi-transport", "eval").assert_outcomes(passed=3)
        run(code, "--rtvi-transport", "twilio").assert_outcomes(passed=1, skipped=2)
        pytester.makeini("[pytest]\nrtvi_transport = eval")
        run(code, "--rtvi-url", bot.base_url).assert_outcomes(passed=3)
    result = run(code, "--rtvi-transport", "pigeon")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--rtvi-transport: 'pigeon' is none of auto, websocket, *"])


def test_several_transports(run: Run) -> None:
    """The summary has the latencies of each transport side by side, if the tests have used more than one."""
    code = """
        import pytest
        from rtvi_sync.media import ToneSource

        @pytest.mark.parametrize("transport", ["websocket", "eval", "twilio"])
        def test_it(rtvi_connect, transport):
            client = rtvi_connect(transport=transport)
            client.ask("Hello" if transport == "websocket" else ToneSource(440, 0.4)).expect(first_audio=30)
        """
    result = run(code)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "rtvi: median by  turns  voice to voice  first audio",
            "rtvi: websocket      1                      *.* s",
            "rtvi: eval           1         *.* s      *.* s",
            "rtvi: twilio         1         *.* s      *.* s",
        ]
    )
    result = run(code, "-k", "eval")
    result.stdout.no_fnmatch_line("rtvi: median by*")


def test_a_transport_without_messages(run: Run) -> None:
    """A test that sends a message over it is skipped, with the reason; one that speaks runs, and may fail."""
    result = run(
        """
        import pytest
        from rtvi_sync import UnsupportedFeatureError
        from tests.support.by_ear import QUESTION, EarTransport

        @pytest.fixture
        def client(rtvi_connect):
            transport = EarTransport()
            transport.start_name = "websocket"  # so that the embedded bot takes it for its own
            return rtvi_connect(transport=transport)

        @pytest.fixture
        def greeted(client):
            client.send_text("Hello")

        def test_types(client):
            client.ask("Hello").expect(contains="Hello")

        def test_begins_by_typing(client, greeted):
            pass

        def test_speaks(client):
            client.ask(QUESTION).expect(voice_to_voice=60)

        def test_expects_the_refusal(client):
            with pytest.raises(UnsupportedFeatureError):
                client.ask("Hello")

        def test_words(client):
            client.ask(QUESTION).expect(contains="Hello")

        def test_another_client(client, rtvi_client):
            rtvi_client.ask("Hello").expect(contains="Hello")

        def test_another_failure(client):
            client.enable_cam(True)
        """,
        "-rs",
    )
    result.assert_outcomes(passed=3, skipped=2, failed=2)
    result.stdout.fnmatch_lines(["SKIPPED * test_*.py:*: The by ear transport carries no messages, so a text cannot *"])
    result.stdout.fnmatch_lines(["*not known over this transport*not_judged*"])


def test_the_token_and_the_headers_of_a_client(run: Run) -> None:
    """A test may give its own token and headers, also with --rtvi-url; they have precedence over the command line."""
    code = """
        import pytest

        @pytest.mark.rtvi(client={"token": "own"})
        def test_token(rtvi_client):
            rtvi_client.ask("Hello").expect(contains="Hello")

        def test_headers(rtvi_connect):
            rtvi_connect(headers={"x-key": "abc"}).ask("Hello").expect(contains="Hello")

        def test_none(rtvi_connect):
            rtvi_connect(headers=None, token=None).ask("Hello").expect(contains="Hello")
        """
    run(code).assert_outcomes(passed=3)
    tokens: list[str] = []
    headers = {"X-Key": "abc", "X-More": "def"}
    with EmbeddedBot(headers=headers, handler=lambda session, _: tokens.append(session.path)) as bot:
        given = ("--rtvi-token", "theirs", "--rtvi-header", "X-Key: wrong", "--rtvi-header", "X-More: def")
        run(code, "--rtvi-url", bot.base_url, *given, "-k", "test_headers").assert_outcomes(passed=1)
        del tokens[:]
        run(code, "--rtvi-url", bot.ws_url, *given, "-k", "test_token").assert_outcomes(passed=1)
    assert {path.partition("?")[2] for path in tokens} == {"token=own"}


@pytest.mark.parametrize(
    ("code", "option", "told"),
    [
        ("@pytest.mark.rtvi(1)\ndef test_it(rtvi_client): pass", "-q", "*takes only keyword arguments*"),
        (
            "@pytest.mark.rtvi(reply='Hi')\ndef test_it(rtvi_client): pass",
            "-q",
            "the marker rtvi has no option 'reply'; the nearest is 'replies'",
        ),
        (
            "@pytest.mark.rtvi(cleint={})\ndef test_it(rtvi_client): pass",
            "--rtvi-url=http://127.0.0.1:1",
            "the marker rtvi has no option 'cleint'; the nearest is 'client'",
        ),
        (
            "@pytest.mark.rtvi(volume=3)\ndef test_it(rtvi_client): pass",
            "-q",
            "the marker rtvi has no option 'volume': it takes live, client, connect, and those of EmbeddedBot",
        ),
    ],
)
def test_mistakes(run: Run, code: str, option: str, told: str) -> None:
    """A mistake in the marker is named, without a traceback of the plugin."""
    result = run("import pytest\n" + code, option)
    assert result.ret != 0
    result.stdout.fnmatch_lines([told])
    if "marker" in told:
        result.stdout.no_fnmatch_line("*pytest_plugin.py*")  # no traceback of the plugin


@pytest.mark.parametrize("header", ["Authorization=Bearer secret", "X Key: secret", "X-Key: sécret secret"])
def test_a_header_that_is_none(run: Run, header: str) -> None:
    """A header that is none is a usage error, and is not repeated, because it may hold a key."""
    result = run(ASKS, "--rtvi-header", header, "--rtvi-url", "http://127.0.0.1:1")
    assert result.ret is pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--rtvi-header: a header looks like this*"])
    assert "secret" not in f"{result.stdout}{result.stderr}"


@pytest.mark.parametrize(
    ("option", "value"),
    [("--rtvi-timeout", "0"), ("--rtvi-timeout", "soon"), ("--rtvi-latency-budget", "-2"), ("--rtvi-timeout", "nan")],
)
def test_seconds_that_are_none(run: Run, option: str, value: str) -> None:
    """A number of seconds that is none is refused before any test, in one line that names the option."""
    result = run(ASKS, option, value)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*error: argument {option}: '{value}' is not a positive number of seconds"])


@pytest.mark.matrix
def test_several_processes(run: Run) -> None:
    """xdist's workers have bots of their own, and the figures of all are summed up."""
    result = run(ASKS + ASKS.replace("test_it", "test_more"), "-n", "2")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["rtvi: 2 turns; first audio *"])


def test_junit(run: Run, pytester: pytest.Pytester) -> None:
    """The XML has the latencies of each test."""
    run(ASKS, "--junitxml=report.xml").assert_outcomes(passed=1)
    report = (pytester.path / "report.xml").read_text("utf-8")
    assert 'name="rtvi_turns" value="1"' in report
    assert 'name="rtvi_first_audio" value="0.' in report


def test_subtests(run: Run) -> None:
    """Each has a report with the turns so far; the summary and the XML count each turn once."""
    code = """
    def test_it(rtvi_client, subtests):
        for question in ("one", "two", "three"):
            with subtests.test(question):
                rtvi_client.ask(question)
    """
    result = run(code)
    result.stdout.fnmatch_lines(["rtvi: 3 turns; first audio *"])


def test_a_test_that_is_repeated(run: Run, pytester: pytest.Pytester) -> None:
    """If a plugin repeats a test with the same item, its last run counts, and its earlier turns do not."""
    pytester.makeconftest("""
    from _pytest.runner import runtestprotocol

    def pytest_runtest_protocol(item, nextitem):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        runtestprotocol(item, nextitem=nextitem, log=False)
        item._initrequest()
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            item.ihook.pytest_runtest_logreport(report=report)
        return True
    """)
    result = run(ASKS)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["rtvi: 1 turns; first audio *"])


def test_switched_off(run: Run) -> None:
    """`-p no:` works."""
    result = run("def test_it(): pass", "-p", "no:rtvi_sync.testing.pytest_plugin")
    result.assert_outcomes(passed=1)


def test_the_import() -> None:
    """Nothing of the package is imported but its two empty parents."""
    code = "import sys, rtvi_sync.testing.pytest_plugin\n"
    code += "print(sorted(m for m in sys.modules if m[:4] == 'rtvi' and '._' not in m))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    names = ["rtvi_sync", "rtvi_sync.testing", "rtvi_sync.testing.pytest_plugin"]
    assert done.stdout.strip() == str(names)


RECORDED = """
    import pytest

    @pytest.mark.parametrize("text", ["a/b", "fails"])
    def test_it(rtvi_client, text):
        rtvi_client.ask(text).expect(contains="a/b")
"""


def test_failed_tests_keep_their_recording(run: Run, pytester: pytest.Pytester) -> None:
    """The report and junit's XML name the files, and the files of passed tests are gone."""
    result = run(RECORDED, "--rtvi-record-failed", "kept", "--junitxml", "junit.xml")
    result.assert_outcomes(passed=1, failed=1)
    (path,) = (pytester.path / "kept").glob("*.jsonl")
    assert {each.stem for each in (pytester.path / "kept").iterdir()} == {path.stem}
    assert "test_it[fails]" in path.name
    page = path.with_suffix(".html")
    result.stdout.fnmatch_lines(["*rtvi recording*", str(page).replace("[", "[[]"), str(path).replace("[", "[[]")])
    assert '"status":"complete"' in page.read_text("utf-8")
    assert str(path) in (pytester.path / "junit.xml").read_text()
    assert [turn.user_text for turn in Recording.load(path).turns()] == ["fails"]
    [mark] = [row["text"] for row in Recording.load(path).rows if row["kind"] == "mark"]
    said = "but it said 'You said: fails' [text_mismatch]"
    assert mark == f"The test failed: turn 1: expected the bot to say 'a/b' {said}"
    assert not Recording.load(path).is_cut


@pytest.mark.parametrize(
    ("code", "options", "why"),
    [
        (
            """
            def test_it(rtvi_client):
                rtvi_client.ask("Hello")
            """,
            ["--rtvi-latency-budget", "0.000001"],
            "the first audio of turn 1 came after * s; the latency budget is 1e-06 s",
        ),
        (
            """
            def test_it(rtvi_client):
                def check(event):
                    assert False, "not this one"

                rtvi_client.on("bot_llm_started", check)
                rtvi_client.ask("Hello")
            """,
            [],
            "a handler of 'botLlmStarted' raised AssertionError: not this one*",
        ),
    ],
    ids=["late", "handler"],
)
def test_a_failure_after_the_test_has_its_recording(
    run: Run, pytester: pytest.Pytester, code: str, options: list[str], why: str
) -> None:
    """A late answer and an assertion of a handler are found after the test; their recordings have page and mark."""
    result = run(code, "--rtvi-record-failed", "kept", "--junitxml", "junit.xml", *options)
    result.assert_outcomes(passed=1, errors=1)
    (path,) = (pytester.path / "kept").glob("*.jsonl")
    page = path.with_suffix(".html")
    result.stdout.fnmatch_lines(["*rtvi recording*", str(page), str(path)])
    assert "Test failed" in page.read_text("utf-8")
    assert os.name == "nt" or stat.S_IMODE(page.stat().st_mode) == 0o600
    [mark] = [row["text"] for row in Recording.load(path).rows if row["kind"] == "mark"]
    assert fnmatch(mark, f"The test failed: {why}")
    assert str(page) in (pytester.path / "junit.xml").read_text()


def test_a_test_that_leaves_something_names_its_recording(run: Run, pytester: pytest.Pytester) -> None:
    """What the embedded bot finds is told after the recordings have ended; the report names what there is of them."""
    result = run(
        """
        from rtvi_sync import connect

        kept = []

        def test_it(rtvi_client, rtvi_url):
            kept.append(connect(rtvi_url, text_only=True))

        def test_end():
            kept[0].close()
        """,
        "--rtvi-record-failed",
        "kept",
    )
    result.assert_outcomes(passed=2, errors=1)
    (path,) = (pytester.path / "kept").glob("*.jsonl")
    result.stdout.fnmatch_lines(["*left by the test*", "*rtvi recording*", str(path)])
    assert str(path.with_suffix(".html")) not in result.stdout.str()


def test_every_test_keeps_its_recording(run: Run, pytester: pytest.Pytester) -> None:
    """A file name has no slash of the test's parameters; the folder is relative to the ini file."""
    run(RECORDED, "--rtvi-record", "all").assert_outcomes(passed=1, failed=1)
    assert len([*(pytester.path / "all").glob("*.jsonl")]) == 2


def test_no_two_tests_share_a_recording(run: Run, pytester: pytest.Pytester) -> None:
    """Tests have separate recordings, even if their names differ only in forbidden characters or are too long."""
    names = ["yes?", "yes!", "\u00e9" * 200, "a" + "x" * 300, "b" + "x" * 300]
    run(
        f"""
        import pytest

        @pytest.mark.parametrize("text", {names!r}, ids=str)
        def test_it(rtvi_client, text):
            assert not rtvi_client.ask("Hello").bot_text
        """,
        "--rtvi-record-failed",
        "kept",
    ).assert_outcomes(failed=5)
    assert len([*(pytester.path / "kept").glob("*.jsonl")]) == 5


def test_a_failed_test_without_a_recording_says_how_to_get_one(run: Run, pytester: pytest.Pytester) -> None:
    """One line names the option; the ini file may have it."""
    result = run(RECORDED)
    result.stdout.fnmatch_lines(["*rtvi recording*", "*--rtvi-record-failed DIR*"])
    pytester.makeini("[pytest]\nrtvi_record_failed = kept")
    run(RECORDED)
    assert len([*(pytester.path / "kept").glob("*.jsonl")]) == 1


TIMED = """
    import pytest
    from rtvi_sync import Turn

    # Planted, so that the figures depend on no machine.
    Turn.time_to_first_token = property(lambda turn: SECONDS + 0.1 * (ord(turn.user_text[-1]) % 4))

    @pytest.mark.parametrize("half", [0, 1])
    @pytest.mark.rtvi(client={"text_only": True})
    def test_it(rtvi_client, half):
        for number in range(10):
            rtvi_client.ask(f"Tell me about {'ABCD'[number % 4]}", audio_response=False)
"""


@pytest.fixture
def baseline(pytester: pytest.Pytester) -> Path:
    """Write recordings of 20 answers whose first token arrived after .5 to .8 s, and return their folder."""
    folder = pytester.path / "old"
    folder.mkdir()
    script = Script(folder, audio=False)
    for number in range(20):
        letter = "ABCD"[number % 4]
        script.turn(f"Tell me about {letter}", "Here it is.", wait=0.6 + 0.1 * (ord(letter) % 4), spoken=False)
    script.write()
    return folder


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.matrix)])
def test_a_baseline(run: Run, baseline: Path, options: tuple[str, ...]) -> None:
    """A run that is 150 ms slower than the baseline fails, and says by how much; one that is 5 ms slower does not."""
    options = ("--rtvi-baseline", "old", *options)
    slower = run(TIMED.replace("SECONDS", "0.65"), *options)
    slower.assert_outcomes(passed=2)
    assert slower.ret == pytest.ExitCode.TESTS_FAILED
    slower.stdout.fnmatch_lines(
        [
            "rtvi: compared with old:",
            "first token p50 *slower *650 *800 *+150 *",
            "rtvi: FAILED, slower than old: first token p50 by 150 ms (800 ms, was 650 ms)*",
        ]
    )
    same = run(TIMED.replace("SECONDS", "0.505"), *options)
    assert same.ret == pytest.ExitCode.OK
    same.stdout.fnmatch_lines(["first token p50 *same *650 *655 *+5 *"])
    same.stdout.no_fnmatch_line("*FAILED*")


def test_a_baseline_that_cannot_judge(run: Run, baseline: Path) -> None:
    """Few answers, and questions that one side alone has, are named, and fail nothing."""
    result = run(ASKS, "--rtvi-baseline", str(baseline))
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "not compared, because they were asked only before: 'Tell me about A', *",
            "not compared, because they were asked only after: 'Hello'",
            "not judged: p50 needs 5 turns *",
        ]
    )


def test_a_baseline_that_is_none(run: Run, baseline: Path, pytester: pytest.Pytester) -> None:
    """A mistake in the option is reported before any test runs, in one line that names it."""
    (pytester.path / "empty").mkdir()
    for options in (
        ("--rtvi-baseline", "missing"),
        ("--rtvi-baseline", "empty"),
        ("--rtvi-baseline", "old", "--rtvi-record", "old"),
        ("--rtvi-baseline", "old", "--rtvi-record", "old/new"),
    ):
        result = run(ASKS, *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR, options
        result.stderr.fnmatch_lines(["ERROR: --rtvi-baseline: *"])
    assert len([*baseline.iterdir()]) == 1
