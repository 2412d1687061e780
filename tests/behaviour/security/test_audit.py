"""The look-up of known vulnerabilities in `run.py lint`: it fails on findings, and names unaudited packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import run
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[3]

# A stand-in for pip-audit that gives the test's answer for each service.
STAND_IN = """
import json, os, sys
answers = json.loads(os.environ["ANSWERS"])
service = sys.argv[sys.argv.index("--vulnerability-service") + 1]
answer = answers[service]
with open(os.environ["CALLS"], "a") as calls:
    print(service, os.environ.get("REQUESTS_CA_BUNDLE"), os.environ.get("HTTPS_PROXY"), file=calls)
if isinstance(answer, str):
    sys.exit("Traceback ...\\n" + answer)
print(json.dumps({"dependencies": answer, "fixes": []}))
sys.exit(any(package.get("vulns") for package in answer))
"""

SOUND: dict[str, Any] = {"name": "sound", "version": "1.0", "vulns": []}
UNKNOWN: dict[str, Any] = {"name": "ours", "skip_reason": "not found on PyPI"}
VULNERABLE: dict[str, Any] = {
    "name": "leaky",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1", "3.0"]}, {"id": "PYSEC-2", "fix_versions": []}],
}


def audit(
    folder: Path, pypi: Any, osv: Any = "unreachable", *arguments: str, **variables: str
) -> tuple[int, list[str]]:
    """Run the audit with these answers; exit status and lines."""
    (folder / "pip_audit.py").write_text(STAND_IN)
    environ = {name: value for name, value in os.environ.items() if name not in ("REQUESTS_CA_BUNDLE", "HTTPS_PROXY")}
    environ |= {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "ANSWERS": json.dumps({"pypi": pypi, "osv": osv})}
    done = subprocess.run(
        [sys.executable, "-m", "tools.audit", *arguments],
        env={**environ, "CALLS": str(folder / "calls"), **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("required", [(), ("--require",)])
def test_all_is_well(tmp_path: Path, required: tuple[str, ...]) -> None:
    """Every package was looked up and none is in the list: one line, and no second service is asked.

    The project itself, which may be installed in place, is no dependency.
    """
    itself = {"name": "rtvi_sync", "skip_reason": "not found on PyPI"}
    assert audit(tmp_path, [SOUND, itself, SOUND], "", *required) == (
        0,
        ["pip-audit: 2 packages audited, no known vulnerabilities"],
    )
    assert (tmp_path / "calls").read_text().count("\n") == 1


def test_a_vulnerability_fails(tmp_path: Path) -> None:
    """Each vulnerability is reported with its package and the versions that fix it."""
    status, lines = audit(tmp_path, [SOUND, VULNERABLE, UNKNOWN])
    assert status == 1
    assert lines == [
        "pip-audit: leaky 2.0: PYSEC-1, fixed in 2.1, 3.0",
        "pip-audit: leaky 2.0: PYSEC-2, fixed in no version yet",
        "pip-audit: 2 packages audited, 2 known vulnerabilities",
        "pip-audit: NOT AUDITED, the service does not know: ours",
    ]


@pytest.mark.parametrize(("required", "status"), [((), 0), (("--require",), 1)])
def test_what_was_not_audited_is_named(tmp_path: Path, required: tuple[str, ...], status: int) -> None:
    """A package that the service does not know is named; where the audit is required it fails."""
    found, lines = audit(tmp_path, [SOUND, UNKNOWN], "", *required)
    assert found == status
    assert lines[-1] == "pip-audit: NOT AUDITED, the service does not know: ours"


@pytest.mark.parametrize(("required", "status"), [((), 0), (("--require",), 1)])
@pytest.mark.parametrize("pypi", [[UNKNOWN, UNKNOWN], "ConnectionError: nobody there"], ids=["mirror", "no network"])
def test_no_service_can_be_asked(tmp_path: Path, pypi: Any, required: tuple[str, ...], status: int) -> None:
    """Where nothing can be looked up that is one clear line, and no pass in silence."""
    found, lines = audit(tmp_path, pypi, "ConnectionError: no network", *required)
    assert found == status
    (line,) = lines
    assert line.startswith("pip-audit: NOT AUDITED, no list of vulnerabilities can be reached from here (PyPI: ")
    assert "OSV: ConnectionError: no network" in line


def test_another_service_is_asked(tmp_path: Path) -> None:
    """A mirror of PyPI that has no list does not end it: OSV may have one."""
    status, lines = audit(tmp_path, [UNKNOWN], [VULNERABLE])
    assert status == 1
    assert "PYSEC-1" in lines[0]


def test_the_settings_of_pip_count(tmp_path: Path) -> None:
    """The authority and the proxy that pip is set to use for its index are used here as well."""
    config = tmp_path / "pip.conf"
    config.write_text("[global]\ncert = /some/authority.pem\nproxy = http://proxy.example:3128\n")
    audit(tmp_path, [SOUND], PIP_CONFIG_FILE=str(config), PIP_CERT="/my/authority.pem")
    assert (tmp_path / "calls").read_text() == "pypi /my/authority.pem http://proxy.example:3128\n"


def test_the_real_thing_is_understood() -> None:
    """pip-audit takes the options that it is given."""
    pytest.importorskip("pip_audit", reason="`run.py lint` installs it")
    help_ = subprocess.run([sys.executable, "-m", "pip_audit", "--help"], capture_output=True, text=True, timeout=GUARD)
    for option in ("--vulnerability-service", "--format", "--progress-spinner"):
        assert option in help_.stdout


@pytest.mark.parametrize("required", [False, True])
def test_lint_looks_for_weak_spots(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], required: bool
) -> None:
    """`run.py lint` always runs bandit and the audit with all other checks, and names the failed ones at the end."""
    commands: list[list[str]] = []

    def show(command: list[Any], *_: object, **__: str) -> int:
        commands.append([str(word) for word in command[1:]])
        return {"bandit": 1, "mypy": 2}.get(str(command[2]), 0)

    monkeypatch.setattr(run, "own_environment", lambda _: Path(sys.executable))
    monkeypatch.setattr(run, "run_command", show)
    monkeypatch.setattr(run, "run_aside", lambda *given, **more: (show(*given, **more), ""))
    options = ["--require"] if required else []
    assert run.lint([*options, "--fix"]) == 1
    assert capfd.readouterr().out.splitlines() == ["FAILED: -m mypy", "FAILED: -m bandit -q"]
    modules = [command[1] for command in commands if command[0] == "-m"]
    aside = ["bandit", "codespell_lib", "mypy", "pyright", "pyright", "pytest", "tools.audit"]  # two at a time
    assert (modules[:2], sorted(modules[2:])) == (["ruff", "ruff"], aside)
    assert commands[:2] == [["-m", "ruff", "check", "--fix"], ["-m", "ruff", "format", "--check"]]
    assert ["-m", "tools.audit", *options] in commands
    (bandit,) = (command for command in commands if command[1] == "bandit")
    assert {"rtvi_sync", "run.py", "tools"} < {*bandit}


def test_bandit_finds_something(tmp_path: Path) -> None:
    """With the project's own settings, bandit still fails for dangerous code."""
    pytest.importorskip("bandit", reason="`run.py lint` installs it")
    bad = tmp_path / "bad.py"
    bad.write_text("import subprocess\nsubprocess.run(input(), shell=True)\n")
    bandit = [sys.executable, "-m", "bandit", "-q", "-c", str(ROOT / "pyproject.toml"), "-r"]
    done = subprocess.run([*bandit, str(bad)], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 1
    assert "B602" in done.stdout
