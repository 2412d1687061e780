"""A real kernel, driven as a front end does: run cells, keep their outputs, interrupt."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]


class CellError(Exception):
    """A cell raised: `name` of the exception's class, `value` its text, `lines` as shown, without colours."""

    def __init__(self, name: str, value: str, lines: list[str]) -> None:
        super().__init__(f"{name}: {value}")
        self.name = name
        self.value = value
        self.lines = lines


class Kernel:
    """Runs one cell at a time.

    Attributes:
        displays: the HTML of each output that has an id; one that is shown twice is one output.
        pages: the HTML of all updates of such outputs, in order.
    """

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager = manager
        self._client = client
        self.displays: dict[str, str] = {}
        self.pages: list[str] = []

    def run(self, code: str) -> str:
        """Run a cell, wait for its end, and return its output and its result as text.

        Raises:
            CellError: The cell raised.
        """
        return self.finish(self.start(code))

    def start(self, code: str) -> str:
        """Run a cell; `finish()` waits for its end."""
        request: str = self._client.execute(code, store_history=True)
        return request

    def finish(self, request: str) -> str:
        """Wait for the end of a cell."""
        shown, error = "", None
        deadline = time.monotonic() + GUARD
        while True:
            message = self._client.get_iopub_msg(timeout=max(0.0, deadline - time.monotonic()))
            kind, content = message["msg_type"], message["content"]
            self._follow(kind, content)
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "stream":
                shown += content["text"]
            elif kind == "execute_result":
                shown += content["data"]["text/plain"]
            elif kind == "error":
                shown_error = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
                error = CellError(content["ename"], content["evalue"], shown_error.splitlines())
            elif kind == "status" and content["execution_state"] == "idle":
                break
        if error is not None:
            raise error
        return shown

    def wait_for_output(self, request: str, text: str) -> None:
        """Wait until a running cell has printed a text."""
        deadline = time.monotonic() + GUARD
        while True:
            message = self._client.get_iopub_msg(timeout=max(0.0, deadline - time.monotonic()))
            self._follow(message["msg_type"], message["content"])
            if message["msg_type"] == "stream" and text in message["content"]["text"]:
                return
            ended = message["msg_type"] == "error" or message["content"].get("execution_state") == "idle"
            assert not (ended and message["parent_header"].get("msg_id") == request), "the cell has ended"

    def interrupt(self) -> None:
        """Interrupt the kernel, as the stop button does."""
        self._manager.interrupt_kernel()

    def stop(self) -> None:
        """Shut the kernel down, as closing the notebook does."""
        self._manager.shutdown_kernel()

    def _follow(self, kind: str, content: dict[str, Any]) -> None:
        id_ = (content.get("transient") or {}).get("display_id")
        if id_ is None:
            return
        page = content["data"]["text/html"]
        if kind == "update_display_data":
            assert id_ in self.displays, "an output is replaced that was never shown"
            self.pages.append(page)
        self.displays[id_] = page


@contextlib.contextmanager
def running_kernel() -> Iterator[Kernel]:
    """Start a kernel that finds the package of this repository, and stop it at the end."""
    folder = tempfile.TemporaryDirectory()
    # By default the files of all kernels of a folder have the same names, and two that start at once collide.
    files = {"transport": "ipc", "ip": str(Path(folder.name, "kernel"))} if os.name == "posix" else {}
    manager = KernelManager(kernel_name="python3", **files)
    manager.start_kernel(env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=str(ROOT))
    client = manager.blocking_client()
    # Without the heartbeat, which takes a new socket if the kernel of a busy machine does not answer within a second.
    client.start_channels(hb=False)
    try:
        client.wait_for_ready(timeout=GUARD)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
        folder.cleanup()
