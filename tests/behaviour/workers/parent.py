"""A program that is connected, starts children, and prints the results of their calls and its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.support.slowness import GUARD

from . import app

Call = tuple[str, str]


def call(view: str, word: str) -> Any:
    """Return the answer of a view of the application in this process."""
    return {"pid": os.getpid(), "view": view, "answer": app.VIEWS[f"/{view}"](word)}


def process(context: Any, calls: list[Call]) -> list[Any]:
    """Run two processes at once, each of which makes all the calls."""
    answers = context.SimpleQueue()
    children = [context.Process(target=_process, args=(answers, calls)) for _ in range(2)]
    for child in children:
        child.start()
    told = [answer for _ in children for answer in answers.get()]
    for child in children:
        child.join(GUARD)
    assert [child.exitcode for child in children] == [0, 0]
    return told


def _process(answers: Any, calls: list[Call]) -> None:
    answers.put([call(*each) for each in calls])


def pool(context: Any, calls: list[Call]) -> list[Any]:
    """Run a pool of two, which end as their tasks are done."""
    workers = context.Pool(2)
    answers: list[Any] = workers.starmap(call, calls, chunksize=1)
    workers.close()
    workers.join()
    return answers


def executor(context: Any, calls: list[Call]) -> list[Any]:
    """Run an executor of two."""
    with ProcessPoolExecutor(2, mp_context=context) as workers:
        return list(workers.map(call, *zip(*calls, strict=True), timeout=2 * GUARD))


def os_fork(_: Any, calls: list[Call]) -> list[Any]:
    """Run a child of `os.fork()` that exits as a program does."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps([call(*each) for each in calls]).encode())
        sys.exit(0)
    os.close(writer)
    assert os.waitpid(child, 0)[1] == 0
    with open(reader, "rb") as answers:
        return list(json.load(answers))


def context_of(method: str) -> Any:
    """Return how children are started; "preloaded": by a server that has imported the application, and is connected."""
    if method != "preloaded":
        return multiprocessing.get_context(method)
    os.environ["RTVI_CONNECT_EARLY"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([app.__name__])
    return context


def main(method: str, style: Callable[[Any, list[Call]], list[Any]]) -> None:
    """Make the calls in children of a kind, then one in this process, which is connected all the while."""
    calls = [("in_shared", "a"), ("in_own", "b"), ("many", "c")]
    if method in ("fork", "preloaded"):
        calls.append(("in_early", ""))
    with app.early:
        answers = style(context_of(method), calls)
        parent = [os.getpid(), app.early.send_client_request("echo", "d")]
    json.dump({"children": answers, "parent": parent}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], {f.__name__: f for f in (process, pool, executor, os_fork)}[sys.argv[2]])
