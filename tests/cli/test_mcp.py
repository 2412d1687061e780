"""`rtvi-sync mcp`: its arguments, and its messages where it cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rtvi_sync.cli import main
from tests.support.agent import command
from tests.support.installed import without
from tests.support.slowness import GUARD
from tests.support.talk_command import environment


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--allow-url", "example.com"], "it is not a URL prefix"),
        (["--allow-url", "https://u:s3cret@example.com"], "it has a user"),
        (["--header", "s3cret"], "a header looks like this"),
        (["--timeout", "0"], "'0' is not a positive number of seconds"),
        (["--transport", "pigeon"], "invalid choice"),
        (["--record", "FILE"], "File exists"),
        (["--record", "FILE/below"], "Not a directory"),
        (["url"], "unrecognized arguments"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments(arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that cannot be used have the status 2 before anything is served; stdout stays empty."""
    tmp_path.joinpath("FILE").touch()
    words = [word.replace("FILE", str(tmp_path / "FILE")) for word in arguments]
    try:
        status: object = main(["mcp", *words])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert "s3cret" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo terminal there")
def test_a_terminal() -> None:
    """Started from a terminal, the server prints on stderr that it waits for a client; Ctrl-C ends it."""
    keyboard, terminal = os.openpty()
    pipe = subprocess.PIPE
    with subprocess.Popen(command(), env=environment(), stdin=terminal, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        assert "Ctrl-C ends it" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert [*process.communicate(timeout=GUARD), process.returncode] == ["", "", 130]
    os.close(keyboard)
    os.close(terminal)


@pytest.mark.parametrize("missing", ["mcp", "mcp_types"])
def test_without_the_extra(missing: str, tmp_path: Path) -> None:
    """One line names the command that installs the package; also if it is a version 1, which has no `mcp_types`."""
    words, hidden = command(), without(tmp_path / "hidden", missing)
    done = subprocess.run(words, env=hidden, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GUARD)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith('rtvi-sync mcp: rtvi-sync mcp needs the extra "mcp". Install it with: ')
    assert done.stderr.count("\n") == 2
