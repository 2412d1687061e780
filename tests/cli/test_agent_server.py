"""The server of `rtvi-sync mcp` on its pipes: the protocol, calls that are cancelled, and how the process ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from rtvi_sync.testing import EmbeddedBot, FaultProxy, Reply
from rtvi_sync.testing.faults import BlackHole
from tests.support.agent import Agent, RawAgent, command
from tests.support.slowness import GUARD, takes
from tests.support.talk_command import environment

TOOLS = ["connect", "ask", "say_audio", "listen", "barge_in", "expect", "last_turn", "hang_up"]
NEVER = Reply("At last.", after=3600)
#: A program that starts the server, has it wait for the bot, and waits for it.
HOST = """
import asyncio, sys
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main(url, program, *words):
    parameters = StdioServerParameters(command=program, args=words, env={"PYTHONPATH": "."})
    async with Client(stdio_client(parameters)) as client:
        await client.call_tool("connect", {"url": url})
        await client.call_tool("ask", {"text": "never", "timeout": 600})

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    with EmbeddedBot(replies={"never": NEVER}) as bot:
        yield bot


@pytest.fixture
def waiting(bot: EmbeddedBot) -> Iterator[RawAgent]:
    """Return an agent in the middle of an ask()."""
    with RawAgent() as agent:
        agent.begin_tool("connect", url=bot.ws_url)
        assert not agent.answer()["result"]["isError"]
        agent.begin_tool("ask", text="never", timeout=600)
        bot.assert_heard("never", timeout=GUARD)
        yield agent


def test_what_is_offered() -> None:
    """There are eight tools with schemas that know each argument, and instructions."""
    with Agent() as agent:
        tools = agent.tools()
        assert "hang_up" in agent.instructions
    assert [*tools] == TOOLS
    for schema in tools.values():
        assert schema["additionalProperties"] is False
        assert {*schema["required"]} <= {*schema["properties"]}
    assert tools["connect"]["required"] == ["url"]
    assert [*tools["expect"]["properties"]] == ["contains", "calls", "absent_calls", "first_audio", "interrupted"]


def test_nothing_else_is_on_stdout(bot: EmbeddedBot, one_word: Path) -> None:
    """Each line of stdout is a message of the protocol; warnings are on stderr, and requests that are none are not
    answered there."""
    with RawAgent() as agent:
        assert agent.process.stdin is not None
        agent.process.stdin.write('no JSON\n{"jsonrpc": "2.0"}\n\n')
        agent.begin("no/such/method")
        assert "error" in agent.answer()
        assert [tool["name"] for tool in agent.ask("tools/list")["tools"]] == TOOLS
        agent.begin_tool("connect", url=bot.ws_url)
        agent.answer()
        agent.begin_tool("ask", text=str(one_word))  # of which a warning is logged
        agent.answer()
        out, err = agent.process.communicate(timeout=GUARD)
    assert [json.loads(line)["jsonrpc"] for line in out.splitlines()] == []
    assert "is the name of an audio file" in err


def test_other_calls_pass_one_that_waits(waiting: RawAgent, bot: EmbeddedBot) -> None:
    """While ask() waits, the server answers; hang_up() ends the waiting call, and a session can start."""
    assert waiting.ask("ping") == {}
    waiting.begin_tool("hang_up")
    answers = sorted((waiting.answer() for _ in range(2)), key=lambda answer: int(answer["id"]))
    assert [answer["result"]["isError"] for answer in answers] == [True, False]
    assert "DisconnectedError" in answers[0]["result"]["content"][0]["text"]
    waiting.begin_tool("connect", url=bot.ws_url)
    assert not waiting.answer()["result"]["isError"]


def test_a_call_that_is_cancelled(bot: EmbeddedBot) -> None:
    """The server works on after an ask() was cancelled: hang_up() ends the session, and another one starts."""
    with Agent() as agent:
        agent.call("connect", url=bot.ws_url)
        asked = agent.begin("ask", text="never", timeout=600)
        bot.assert_heard("never", timeout=GUARD)
        asked.cancel()
        with pytest.raises(CancelledError):
            asked.result(GUARD)
        assert agent.call("last_turn")["status"] == "in_progress"
        agent.call("hang_up")
        agent.call("connect", url=bot.ws_url)
        assert agent.call("ask", text="Hello")["bot_text"] == "You said: Hello"


def test_eof_in_the_middle_of_an_ask(waiting: RawAgent, bot: EmbeddedBot) -> None:
    """The process ends within 2 s, with status 0 and nothing on stderr; the bot's session has ended."""
    with takes(2):
        out, err = waiting.process.communicate(timeout=GUARD)
    assert (waiting.process.returncode, err) == (0, "")
    assert [json.loads(line)["error"]["message"] for line in out.splitlines()] == ["Connection closed"]
    bot.wait_for_session().wait_ended(GUARD)


def test_eof_while_it_connects() -> None:
    """The process ends within 2 s though the bot is never ready."""
    with EmbeddedBot(ready=False) as bot, RawAgent() as agent:
        agent.begin_tool("connect", url=bot.ws_url)
        assert agent.ask("ping") == {}
        with takes(2):
            agent.process.communicate(timeout=GUARD)
        assert agent.process.returncode == 0


def test_eof_while_the_network_hangs(bot: EmbeddedBot) -> None:
    """The process ends within 2 s even if the bot receives nothing."""
    with FaultProxy.before(bot.ws_url) as proxy, RawAgent() as agent:
        agent.begin_tool("connect", url=proxy.url(bot.ws_url))
        assert not agent.answer()["result"]["isError"]
        for connection in proxy.connections:
            connection.inject(BlackHole())
        agent.begin_tool("ask", text="long" * 100_000, timeout=600)
        assert agent.ask("ping") == {}
        with takes(2):
            agent.process.communicate(timeout=GUARD)
        assert agent.process.returncode == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals there")
def test_signals(waiting: RawAgent, number: signal.Signals, status: int) -> None:
    """A signal ends the process though stdin is open and a call waits."""
    with takes(2):
        waiting.process.send_signal(number)
        assert waiting.process.wait(GUARD) == status


def test_a_reader_that_has_gone(waiting: RawAgent) -> None:
    """The process ends with status 0 if stdout was closed before stdin."""
    assert waiting.process.stdout is not None
    waiting.process.stdout.close()
    waiting.process.stdout = None
    _, err = waiting.process.communicate(timeout=GUARD)
    assert waiting.process.returncode == 0
    assert "Traceback" not in err


def test_an_agent_that_is_killed(bot: EmbeddedBot) -> None:
    """If the agent is killed in the middle of an ask(), the server ends: no process has its stderr any more."""
    with subprocess.Popen(
        [sys.executable, "-c", HOST, bot.ws_url, *command()],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as host:
        assert host.stderr is not None
        bot.assert_heard("never", timeout=GUARD)
        host.kill()
        with takes(2):
            assert "Traceback" not in host.stderr.read()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such shell there")
def test_no_stdin() -> None:
    """Without stdin there is nothing to do."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command()],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
