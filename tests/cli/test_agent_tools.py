"""The tools of `rtvi-sync mcp`, called by a client of MCP over stdio: their results and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rtvi_sync import Recording
from rtvi_sync.testing import EmbeddedBot, Fault, Reply
from tests.support.agent import Agent

OSLO = {"city": "Oslo"}
STORY = Reply("Once upon a time there was a bot. " * 20)
REPLIES: dict[str, str | Reply] = {
    "weather": Reply(
        "It rains in Oslo.", call=("get_weather", OSLO), result={"sky": "grey"}, seconds=0.1, report_level="full"
    ),
    "story": STORY,
    "long": Reply("Word by word. " * 1000, call=("read", {"text": "abc " * 4000}), result="ü" * 9000, say=""),
    "hello": "Hello.",
}


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    """Start a server, whose session a test starts and ends."""
    with Agent() as agent:
        yield agent


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    with EmbeddedBot(replies=REPLIES, hangover=0.2, faults=[Fault("error", "wrong"), Fault("stall", "slow")]) as bot:
        yield bot


@pytest.fixture
def connected(agent: Agent, bot: EmbeddedBot) -> Iterator[Agent]:
    """Return an agent that has a session with the bot."""
    agent.call("connect", url=bot.ws_url)
    yield agent
    agent.try_("hang_up")


def test_a_turn(connected: Agent) -> None:
    """A turn has the texts, the calls, the latencies in milliseconds, and the timeline."""
    turn = connected.call("ask", text="How is the weather?")
    assert [turn[name] for name in ("turn", "status", "user_text", "bot_text", "spoken_text", "errors")] == [
        *(1, "complete", "How is the weather?"),
        *("It rains in Oslo.", "It rains in Oslo.", []),
    ]
    (call,) = turn["calls"]
    assert call.pop("ms") >= 0
    assert call == {"name": "get_weather", "arguments": OSLO, "result": {"sky": "grey"}, "cancelled": False}
    assert 0 < turn["latencies_ms"]["time_to_first_audio"] < 30_000
    assert "voice_to_voice" not in turn["latencies_ms"]
    assert turn["timeline"][0] == "turn 1, RTVI 2.2.0, rtvi_sync.testing 0.1.0"
    assert any(line.endswith('bot   calls get_weather({"city": "Oslo"})') for line in turn["timeline"])
    assert "recording" not in turn


def test_expectations(connected: Agent) -> None:
    """A met expectation says so; an unmet one has kind and timeline, and names each demand."""
    connected.call("ask", text="How is the weather?")
    demands = {"contains": ["rains", "Oslo"], "calls": {"get_weather": OSLO}, "absent_calls": ["book"]}
    assert connected.call("expect", **demands, first_audio=30) == {"met": True, "turn": 1}
    assert connected.call("expect", calls=["get_weather"], contains="Oslo", interrupted=None) == {
        "met": True,
        "turn": 1,
    }
    failure = connected.fail("expect", contains="snow", calls={"get_weather": {"city": "Rome"}}, first_audio=0)
    assert failure["kind"] == "text_mismatch"
    assert failure["timeline"][0].startswith("turn 1, ")
    for kind in ("text_mismatch", "function_args_mismatch", "latency"):
        assert f"[{kind}]" in failure["error"]
    assert connected.fail("expect", interrupted=True)["kind"] == "interrupted"
    assert connected.fail("expect", absent_calls=["get_weather"])["kind"] == "unexpected_event"


def test_a_latency_in_milliseconds_is_refused(connected: Agent) -> None:
    """A limit that any turn would meet is an error, and not an expectation that is met."""
    connected.call("ask", text="hello")
    assert "in seconds" in connected.fail("expect", first_audio=440)["error"]


def test_the_last_turn(agent: Agent, bot: EmbeddedBot) -> None:
    """last_turn() returns the turn again, also after the session; the next session has another one."""
    agent.call("connect", url=bot.ws_url)
    turn = agent.call("ask", text="hello")
    assert agent.call("last_turn") == turn
    ended = agent.call("hang_up")
    assert (ended["hung_up"], ended["turns"]) == (bot.ws_url, 1)
    assert agent.call("last_turn") == turn
    assert agent.call("expect", contains="Hello") == {"met": True, "turn": 1}
    agent.call("connect", url=bot.ws_url)
    assert "no turn yet" in agent.fail("last_turn")["error"]
    assert "no turn yet" in agent.fail("expect", contains="Hello")["error"]
    assert agent.call("ask", text="weather")["turn"] == 1
    agent.call("hang_up")


def test_a_file_is_said(connected: Agent, one_word: Path) -> None:
    """say_audio() says an audio file, and measures latency from voice to voice; it refuses other files."""
    turn = connected.call("say_audio", path=str(one_word))
    assert turn["latencies_ms"]["voice_to_voice"] > 0
    assert turn["bot_text"].startswith("You said: ")
    for path in (one_word.parent, one_word.with_name("none.wav"), "\0"):
        assert connected.fail("say_audio", path=str(path))["kind"] == "ValueError"
    failure = connected.fail("say_audio", path=str(one_word.with_suffix(".txt")))
    assert "word.txt" in failure["error"]
    assert "other arguments" in failure["next"]


def test_a_greeting_is_heard(agent: Agent) -> None:
    """listen() returns the bot's unasked words."""
    with EmbeddedBot(greeting="Good day.") as bot:
        agent.call("connect", url=bot.base_url)
        assert agent.call("listen")["bot_text"] == "Good day."
        timeout = agent.fail("listen", timeout=0.1)
        assert timeout["kind"] == "RequestTimeoutError"
        agent.call("hang_up")


def test_a_barge_in(connected: Agent) -> None:
    """ask() returns the interrupted turn, and listen() the answer to the interruption."""
    assert connected.call("barge_in", text="not this", after_s=0)["armed"] == "not this"
    connected.call("barge_in", text="hello, stop", after_s=0.1)
    first = connected.call("ask", text="Tell me a story")
    assert first["status"] == "interrupted"
    assert len(first["spoken_text"]) < len(first["bot_text"])
    assert "listen" in first["next"]
    assert connected.call("expect", contains="Once", interrupted=True)["met"]
    assert "interrupted" in connected.fail("expect", contains="Once")["error"]
    second = connected.call("listen")
    assert (second["user_text"], second["bot_text"], second["status"]) == ("hello, stop", "Hello.", "complete")
    assert connected.fail("listen", timeout=0)["kind"] == "RequestTimeoutError"


def test_a_barge_in_that_has_no_occasion(connected: Agent) -> None:
    """A barge-in is cancelled when listen() gives up, and the next answer is not interrupted."""
    connected.call("barge_in", text="stop", after_s=0)
    assert "was not asked" in connected.fail("listen", timeout=0.1)["error"]
    assert connected.call("ask", text="hello")["status"] == "complete"


def test_an_answer_that_does_not_come(connected: Agent) -> None:
    """The error holds the answer until the timeout, and last_turn() also holds the rest."""
    failure = connected.fail("ask", text="slow", timeout=0.5)
    assert failure["kind"] == "RequestTimeoutError"
    assert failure["so_far"]["status"] == "in_progress"
    assert connected.call("last_turn")["user_text"] == "slow"
    assert connected.fail("expect")["kind"] == "timeout"


def test_a_question_without_a_turn(connected: Agent, one_word: Path) -> None:
    """After a question that led to none, the turn before it is not taken for the last one; listen() changes nothing."""
    connected.call("ask", text="hello")
    connected.fail("listen", timeout=0)
    assert connected.call("expect", contains="Hello")["met"]
    assert connected.fail("say_audio", path=str(one_word), timeout=0.001)["kind"] == "RequestTimeoutError"
    assert "no turn yet" in connected.fail("expect", contains="Hello")["error"]


def test_a_bot_that_reports_an_error(connected: Agent) -> None:
    """The bot's error is in the tool's, and in the turn."""
    failure = connected.fail("ask", text="what is wrong")
    assert (failure["kind"], failure["so_far"]["errors"]) == ("BotError", ["The model failed"])
    assert connected.fail("expect")["kind"] == "error"


def test_results_are_small(connected: Agent) -> None:
    """A turn with 13,000 characters of text and 25,000 of a call has 8 kB, and says that it was cut; so do errors."""
    turn = connected.call("ask", text="long " * 3000)
    assert turn["cut"].startswith("texts to ")
    assert turn["bot_text"].startswith("Word by word. Word")
    assert turn["bot_text"].endswith("…")
    assert turn["calls"][0]["name"] == "read"
    assert connected.fail("expect", contains=["x" * 20_000, "y"])["cut"]


def test_two_sessions(agent: Agent, bot: EmbeddedBot) -> None:
    """One after the other, by different transports; a second one beside the first is refused."""
    for transport in ("eval", "websocket"):
        begun = agent.call("connect", url=bot.ws_url, transport=transport)
        assert (begun["transport"], begun["bot"]) == (transport, "RTVI 2.2.0, rtvi_sync.testing 0.1.0")
        assert "hang_up" in agent.fail("connect", url=bot.ws_url)["next"]
        assert agent.call("ask", text="hello")["bot_text"] == "Hello."
        agent.call("hang_up")
    assert bot.heard == ["hello", "hello"]


def test_without_a_session(agent: Agent) -> None:
    """Each tool that needs one says to connect: before the first, and after one that was not reached or was left."""
    with EmbeddedBot() as bot:
        for session in ("none", "not reached", "left"):
            if session == "not reached":
                agent.fail("connect", url="ws://127.0.0.1:1/ws")
            elif session == "left":
                agent.call("connect", url=bot.ws_url)
                agent.call("hang_up")
            for name, arguments in (
                ("ask", {"text": "hello"}),
                ("listen", {}),
                ("barge_in", {"text": "hello", "after_s": 1}),
                ("hang_up", {}),
            ):
                failure = agent.fail(name, **arguments)
                assert failure["kind"] == "BotNotReadyError"
                assert "Call connect(url) first" in failure["error"]
                assert "connect(url)" in failure["next"]


def test_what_to_do_next(connected: Agent) -> None:
    """The error of a wrong call, unlike the error of a bot, names another way to call."""
    for name in ("expect", "last_turn"):
        assert "ask(text)" in connected.fail(name)["next"]
    assert "other arguments" in connected.fail("ask", text="x" * 2_000_000)["next"]


def test_a_bot_that_is_not_there(agent: Agent) -> None:
    """A bot that cannot be reached is a tool error that names the doctor; the next connect() is not refused."""
    failure = agent.fail("connect", url="ws://127.0.0.1:1/ws")
    assert "doctor" in failure["next"]
    with EmbeddedBot() as bot:
        agent.call("connect", url=bot.ws_url)
        agent.call("hang_up")


def test_a_bot_that_ends_the_session(agent: Agent) -> None:
    """The error of the next call reports the end, and connect() starts another session."""
    with EmbeddedBot(faults=[Fault("close", "bye")]) as bot:
        agent.call("connect", url=bot.ws_url)
        failure = agent.fail("ask", text="bye")
        assert failure["kind"] == "DisconnectedError"
        assert "connect(url)" in failure["next"]
        agent.call("connect", url=bot.ws_url)
        assert agent.call("ask", text="hello")["status"] == "complete"
        agent.call("hang_up")


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("ask", {}, "missing a required argument: 'text'"),
        ("ask", {"text": ""}, "text must be a string that is not empty"),
        ("ask", {"text": 5}, "text must be a string"),
        ("ask", {"text": "x", "timeuot": 5}, "It takes text, timeout"),
        ("ask", {"text": "x", "timeout": 601}, "timeout must be a number from 0 to 600"),
        ("ask", {"text": "x", "timeout": "5"}, "timeout must be a number"),
        ("say_audio", {"path": 5}, "path must be a path"),
        ("say_audio", {"path": "x", "timeout": -1}, "timeout must be"),
        ("listen", {"timeout": True}, "timeout must be"),
        ("barge_in", {"text": "x", "after_s": 400}, "after_s must be a number from 0 to 60"),
        ("barge_in", {"text": [], "after_s": 1}, "text must be"),
        ("expect", {"contain": "x"}, "It takes contains, calls"),
        ("expect", {"contains": ""}, "contains must be"),
        ("expect", {"calls": 5}, "calls must be"),
        ("expect", {"calls": {"f": 5}}, "calls must be"),
        ("expect", {"absent_calls": "f"}, "absent_calls must be"),
        ("expect", {"first_audio": "1"}, "first_audio must be"),
        ("expect", {"interrupted": "yes"}, "interrupted must be"),
        ("last_turn", {"number": 1}, "It takes nothing"),
        ("hang_up", {"url": "x"}, "It takes nothing"),
        ("connect", {"url": 5}, "url must be"),
        ("connect", {"url": "localhost"}, "not the URL of a bot"),
        ("connect", {"url": "ws://localhost:1", "transport": "carrier pigeon"}, "transport"),
        ("connect", {"url": "ws://localhost:1", "token": 5}, "token must be"),
        ("dance", {}, "There is no tool 'dance'"),
    ],
    ids=repr,
)
def test_wrong_arguments(connected: Agent, name: str, arguments: dict[str, object], text: str) -> None:
    """An argument that cannot be used is a tool error that names it. The session goes on."""
    connected.call("ask", text="hello")
    if name == "connect":
        connected.call("hang_up")
    assert text in connected.fail(name, **arguments)["error"]


def test_recordings(bot: EmbeddedBot, tmp_path: Path) -> None:
    """With --record each session has a recording of its own, which every turn names, and replaces none."""
    folder = tmp_path / "new" / "kept"
    (tmp_path / "new").mkdir()
    with Agent("--record", folder) as agent:
        files = []
        for _ in range(2):
            files.append(Path(agent.call("connect", url=bot.ws_url)["recording"]))
            agent.call("ask", text="hello")
            assert agent.fail("expect", contains="snow")["recording"] == str(files[-1])
            assert agent.call("last_turn")["recording"] == str(files[-1])
            assert agent.call("hang_up")["recording"] == str(files[-1])
            assert agent.fail("expect", contains="rain")["kind"] == "text_mismatch"
    assert files == [folder / "session-1.jsonl", folder / "session-2.jsonl"]
    for file in files:
        recording = Recording.load(file)
        assert [turn.bot_text for turn in recording.turns()] == ["Hello."]
        assert file.with_suffix(".wav").exists()
    with Agent("--record", folder) as agent:
        assert agent.call("connect", url=bot.ws_url)["recording"] == str(folder / "session-3.jsonl")


def test_a_token(bot: EmbeddedBot) -> None:
    """RTVI_TOKEN is sent if the agent passes no token; no result has either."""
    with Agent(RTVI_TOKEN="s3cret") as agent:
        for given in ({}, {"token": "an0ther"}):
            begun = agent.try_("connect", url=bot.ws_url, **given).text + agent.try_("hang_up").text
            assert "s3cret" not in begun
            assert "an0ther" not in begun
    paths = [bot.wait_for_session().path for _ in range(2)]
    assert paths == ["/ws?token=s3cret", "/ws?token=an0ther"]


def test_a_header() -> None:
    """--header is sent to the start endpoint, whose refusal is an error of the tool."""
    with EmbeddedBot(headers={"Authorization": "Bearer s3cret"}) as bot:
        with Agent() as agent:
            assert "401" in agent.fail("connect", url=bot.base_url)["error"]
        with Agent("--header", "Authorization: Bearer s3cret") as agent:
            assert "s3cret" not in str(agent.call("connect", url=bot.base_url))


def test_other_hosts(bot: EmbeddedBot) -> None:
    """By default only this machine may be reached; with --allow-url only URLs that start so."""
    with Agent() as agent:
        for url in ("http://example.com", "wss://10.0.0.7/ws", "http://localhost.example.com", "ws://127.0.0.1@e.com"):
            failure = agent.fail("connect", url=url)
            assert "may not be reached" in failure["error"]
            assert "--allow-url" in failure["next"]
    with Agent("--allow-url", "https://example.com", "--allow-url", bot.base_url) as agent:
        assert agent.call("connect", url=bot.base_url)["connected"] == bot.base_url
        agent.call("hang_up")
        assert "may not be reached" in agent.fail("connect", url=bot.ws_url)["error"]  # which has another port
