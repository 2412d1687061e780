"""Two network namespaces with a cable between them, whose faults a test makes. They need root, `ip` and `iptables`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.required import missing
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]
#: The far end's addresses. The near end's addresses end in 1.
FAR_IPV4, FAR_IPV6 = "10.97.0.2", "fd97::2"
_NEAR = ("10.97.0.1/24", "fd97::1/64")
_numbers = itertools.count()


class Namespace:
    """A network of its own, with a loopback interface and perhaps one end of a cable."""

    def __init__(self, name: str) -> None:
        self.name = name

    def do(self, *words: str) -> None:
        """Run a command that ends at once, such as `ip` or `iptables`."""
        _run("ip", "netns", "exec", self.name, *words)

    @contextlib.contextmanager
    def program(self, script: str, *arguments: str) -> Iterator[Program]:
        """Run a program of Python in it; at the end its standard input is closed, and it must end."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        with process:
            try:
                yield Program(process)
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(GUARD) == 0
            finally:
                process.kill()


class Program:
    """A running program, with which one speaks in lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, document: Any) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """Return the next line."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(GUARD, self._process.kill)
        watchdog.start()
        try:
            return json.loads(self._process.stdout.readline() or "null")
        finally:
            watchdog.cancel()

    def ask(self, document: Any) -> Any:
        """Send a line, and return the answer."""
        self.tell(document)
        return self.hear()


@contextlib.contextmanager
def namespaces(count: int) -> Iterator[Sequence[Namespace]]:
    """Make namespaces that have a loopback interface each. Skip the test where that cannot be."""
    lacking = [name for name in ("ip", "iptables", "ip6tables") if not shutil.which(name)]
    if lacking or not hasattr(os, "geteuid") or os.geteuid() != 0:
        missing(f"network namespaces need root, and {', '.join(lacking) or 'ip and iptables, which are here'}")
    made = [Namespace(f"rtvi-{os.getpid()}-{next(_numbers)}") for _ in range(count)]
    with contextlib.ExitStack() as stack:
        for each in made:
            try:
                _run("ip", "netns", "add", each.name)
            except OSError as error:
                missing(f"this kernel or container makes no network namespace: {error}")
            stack.callback(_run, "ip", "netns", "del", each.name)
            each.do("ip", "link", "set", "lo", "up")
        yield made


@contextlib.contextmanager
def cable() -> Iterator[tuple[Namespace, Namespace]]:
    """Connect a near and a far namespace by a cable, `eth0` at both ends, with IPv4 and IPv6."""
    with namespaces(2) as (near, far):
        _run("ip", "-n", near.name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", far.name)
        for end, addresses in ((near, _NEAR), (far, (f"{FAR_IPV4}/24", f"{FAR_IPV6}/64"))):
            for address in addresses:
                # Without `nodad` an IPv6 address cannot be used for a second.
                end.do("ip", "address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
            end.do("ip", "link", "set", "eth0", "up")
        yield near, far


@contextlib.contextmanager
def nat() -> Iterator[tuple[Namespace, Namespace, Namespace]]:
    """Put a router between the near and the far namespace, which hides the near one: the third of them."""
    with cable() as (router, far), namespaces(1) as (near,):
        _run("ip", "-n", near.name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1", "netns", router.name)
        for end, name, address in ((near, "eth0", "10.98.0.1/24"), (router, "eth1", "10.98.0.2/24")):
            end.do("ip", "address", "add", address, "dev", name)
            end.do("ip", "link", "set", name, "up")
        near.do("ip", "route", "add", "default", "via", "10.98.0.2")
        router.do("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        yield near, far, router


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=GUARD, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
