"""Coding agents, which start `rtvi-sync mcp` and call its tools: one with the client of MCP's SDK, one by hand."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

import attrs
import pytest

from tests.support.slowness import GUARD
from tests.support.talk_command import environment

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

#: Bytes of a result, as docs/guides/coding-agents.md has it.
MAX_BYTES = 8000


def command(*arguments: object) -> list[str]:
    """Return the words of the command line."""
    return [sys.executable, "-W", "error", "-m", "rtvi_sync", "mcp", *map(str, arguments)]


@attrs.frozen
class Answer:
    """The result of a tool."""

    text: str
    is_error: bool

    @property
    def data(self) -> dict[str, Any]:
        """The JSON in it."""
        assert len(self.text.encode()) <= MAX_BYTES
        data: dict[str, Any] = json.loads(self.text)
        return data


class Agent:
    """A client of the SDK, whose calls block. A context manager; leaving it closes the server's stdin."""

    def __init__(self, *arguments: object, folder: Path | None = None, **variables: str) -> None:
        program, *words = command(*arguments)
        self._parameters = StdioServerParameters(
            command=program, args=words, env={**environment(), **variables}, cwd=folder
        )
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Agent:
        with contextlib.ExitStack() as stack:
            self._stderr = stack.enter_context(tempfile.TemporaryFile("w+"))
            self._portal = stack.enter_context(start_blocking_portal())
            client = Client(stdio_client(self._parameters, errlog=self._stderr), read_timeout_seconds=GUARD)
            self._client = stack.enter_context(self._portal.wrap_async_context_manager(client))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def instructions(self) -> str:
        """The server's instructions for an agent."""
        return self._client.instructions or ""

    @property
    def warnings(self) -> str:
        """The text that the server has written to stderr so far."""
        self._stderr.seek(0)
        return self._stderr.read()

    def tools(self) -> dict[str, dict[str, Any]]:
        """Return the JSON schemas of the tools, by name."""
        listed = self._portal.call(self._client.list_tools)
        return {tool.name: tool.input_schema for tool in listed.tools if tool.description}

    def begin(self, name: str, **arguments: Any) -> Future[Any]:
        """Call a tool, and do not wait. Cancelling the future cancels the call."""
        return self._portal.start_task_soon(self._client.call_tool, name, arguments)

    def try_(self, name: str, **arguments: Any) -> Answer:
        """Call a tool."""
        result = self.begin(name, **arguments).result(GUARD)
        (content,) = result.content
        return Answer(content.text, bool(result.is_error))

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that succeeds, and return its result."""
        answer = self.try_(name, **arguments)
        assert not answer.is_error, answer.text
        return answer.data

    def fail(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that fails, and return its result: the mistake and the next step."""
        answer = self.try_(name, **arguments)
        assert answer.is_error, answer.text
        assert answer.data["error"]
        assert answer.data["next"]
        return answer.data


class RawAgent:
    """An agent that writes and reads the lines itself, and may end however it likes. A context manager."""

    def __init__(self, *arguments: object) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command(*arguments), env=environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self._id = 0
        client = {"name": "tests", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self._send(method="notifications/initialized")

    def __enter__(self) -> RawAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def _send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def begin(self, method: str, **params: Any) -> None:
        """Send a request."""
        self._id += 1
        self._send(id=self._id, method=method, params=params)

    def answer(self) -> dict[str, Any]:
        """Read a line, which is the answer to a request."""
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and return the result."""
        self.begin(method, **params)
        result: dict[str, Any] = self.answer()["result"]
        return result

    def begin_tool(self, name: str, **arguments: Any) -> None:
        """Call a tool, and do not wait."""
        self.begin("tools/call", name=name, arguments=arguments)
