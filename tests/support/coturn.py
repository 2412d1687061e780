"""A real TURN server: Debian's coturn."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.loopback import authority
from tests.support.networks import Namespace
from tests.support.required import missing
from tests.support.slowness import GUARD

USER, PASSWORD = "ada", "canary5f3a"
_UNTIL_IT_LISTENS = """
import socket, sys, threading
while True:
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), 1.0).close()
    except OSError:
        threading.Event().wait(0.02)
    else:
        break
"""


@contextlib.contextmanager
def coturn(namespace: Namespace, address: str, folder: Path) -> Iterator[str]:
    """Run coturn at an address of a namespace, for UDP, TCP and TLS; yield its address, as in a URL.

    Its certificate is signed by the authority in `folder`/ca.pem.
    """
    if not shutil.which("turnserver"):
        missing("coturn is not installed: run `python3 run.py test --matrix` as root, or `apt install coturn`")
    inside = ["ip", "netns", "exec", namespace.name]
    options = {
        "listening-ip": address,
        "relay-ip": address,
        "user": f"{USER}:{PASSWORD}",
        "realm": "test",
        "log-file": "stdout",
        "pidfile": folder / "pid",
        "userdb": folder / "users",
        "cert": folder / "certificate.pem",
        "pkey": folder / "key.pem",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    words += ["-n", "--lt-cred-mech", "--no-cli", "--no-dtls", "--simple-log"]
    own = authority().issue_cert(address)
    authority().cert_pem.write_to_path(folder / "ca.pem")
    own.private_key_pem.write_to_path(folder / "key.pem")
    own.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*inside, "turnserver", *words], stdout=log, stderr=log, cwd=folder)
    try:
        waiting = [*inside, sys.executable, "-S", "-c", _UNTIL_IT_LISTENS, address, "3478"]
        subprocess.run(waiting, timeout=GUARD, check=True)
        yield address
    finally:
        process.kill()
        process.wait()
