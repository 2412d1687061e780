"""The command that an error names for an extra fits the way in which the package was installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rtvi_sync
from tests.support.slowness import GUARD

ROOT = Path(rtvi_sync.__file__).parents[1]

WEBRTC = ('aiortc>=1.15; extra == "webrtc"', 'av>=17; extra == "webrtc"', 'mss>=10.2; extra == "screen"')
PRINT = "from rtvi_sync import MissingExtraError; print(MissingExtraError('It', 'webrtc'))"


class Environment:
    """A virtual environment with a copy of the package, and the notes of the tool that installed it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=GUARD)
        (self.packages,) = [*folder.glob("lib/python*/site-packages"), *folder.glob("Lib/site-packages")]
        for name in ("__init__.py", "_version.py", "errors.py", "explanations.py", "installation.py"):
            (self.packages / "rtvi_sync").mkdir(exist_ok=True)
            shutil.copy(ROOT / "rtvi_sync" / name, self.packages / "rtvi_sync")
        self.info = self.packages / "rtvi_sync-1.0.dist-info"
        self.info.mkdir()
        needs = "".join(f"Requires-Dist: {line}\n" for line in WEBRTC)
        (self.info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rtvi_sync\nVersion: 1.0\n{needs}")
        self.python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def came_from(self, origin: Any, installer: str = "pip") -> None:
        """Write an installer's notes."""
        (self.info / "INSTALLER").write_text(f"{installer}\n")
        text = origin if isinstance(origin, str) else json.dumps(origin)
        (self.info / "direct_url.json").write_text(text)

    def add_pip(self) -> None:
        """Let there be a pip, which is found first."""
        (self.packages / "pip.py").touch()
        (self.python.parent / "pip").touch()
        (self.python.parent / "pip").chmod(0o755)

    def command(self, **variables: str) -> str:
        """Return the command that the error has."""
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [self.python, "-c", PRINT],
            cwd=self.folder,
            env={**kept, "PATH": path, **variables},
            capture_output=True,
            text=True,
            timeout=GUARD,
        )
        assert done.returncode == 0, done.stderr
        text, _, command = done.stdout.strip().partition("Install it with: ")
        assert text == 'It needs the extra "webrtc". '
        return command


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Return an environment without pip."""
    return Environment(tmp_path / "an environment")


def test_what_the_package_was_installed_from(environment: Environment, tmp_path: Path) -> None:
    """The command installs from the same index, wheel, folder or repository; if that is gone, the packages alone."""
    environment.add_pip()
    wheel, gone = tmp_path / "rtvi_sync-1.0-py3-none-any.whl", tmp_path / "gone"
    wheel.touch()
    git: dict[str, Any] = {"url": "https://user:secret@example.org/r.git"}
    commit = {"vcs": "git", "commit_id": "abc"}
    archive: dict[str, Any] = {"archive_info": {}}
    repository = "git+https://user@example.org/r.git"
    packages = 'pip install "aiortc>=1.15" "av>=17"'
    for origin, command in (
        ({}, 'pip install "rtvi_sync[webrtc]"'),
        ("damaged", 'pip install "rtvi_sync[webrtc]"'),
        ([], 'pip install "rtvi_sync[webrtc]"'),
        ({"url": wheel.as_uri(), **archive}, f'pip install "rtvi_sync[webrtc] @ {wheel.as_uri()}"'),
        (
            {"url": "https://example.org/r.whl", **archive},
            'pip install "rtvi_sync[webrtc] @ https://example.org/r.whl"',
        ),
        ({"url": tmp_path.as_uri(), "dir_info": {}}, f'pip install "{tmp_path}[webrtc]"'),
        ({**git, "vcs_info": commit}, f'pip install "rtvi_sync[webrtc] @ {repository}@abc"'),
        (
            {**git, "vcs_info": {**commit, "requested_revision": "main"}, "subdirectory": "sdk"},
            f'pip install "rtvi_sync[webrtc] @ {repository}@main#subdirectory=sdk"',
        ),
        ({"url": gone.as_uri(), "dir_info": {}}, packages),
        ({"url": gone.as_uri(), **archive}, packages),
    ):
        environment.came_from(origin)
        assert environment.command() == command


def test_a_package_that_is_used_in_place(environment: Environment) -> None:
    """A package beside its own pyproject.toml, as after `pip install -e`, is installed in place again."""
    environment.add_pip()
    project = environment.packages / "pyproject.toml"
    project.write_text('[project]\nname = "another"\n')
    assert environment.command() == 'pip install "rtvi_sync[webrtc]"'
    project.write_text('[project]\nname = "rtvi_sync"\n')
    assert environment.command() == f'pip install -e "{environment.packages}[webrtc]"'


def test_the_tool_that_installs(environment: Environment) -> None:
    """The command uses the environment's own tool: its pip, uv, uv's tools, pipx, or another pip if it has none."""
    folder, python = environment.folder, f'"{environment.python}"'
    target = '"rtvi_sync[webrtc]"'
    assert environment.command() == f"pip --python {python} install {target}"
    environment.came_from({}, "uv")
    assert environment.command() == f"uv pip install --python {python} {target}"
    assert environment.command(VIRTUAL_ENV=str(folder)) == f"uv pip install {target}"
    environment.came_from({})
    with (folder / "pyvenv.cfg").open("a") as file:
        file.write("uv = 0.9.1\n")
    assert environment.command(VIRTUAL_ENV=str(folder)) == f"uv pip install {target}"
    (folder.parent / "uv.lock").touch()
    assert environment.command() == f"uv add {target}"
    environment.add_pip()
    assert environment.command() == f"pip install {target}"
    assert environment.command(PATH=os.defpath) == f"{python} -m pip install {target}"
    (folder / "pipx_metadata.json").touch()
    assert environment.command() == f'pipx runpip "an environment" install {target}'
    (folder / "pipx_metadata.json").unlink()
    (folder / "uv-receipt.toml").touch()
    assert environment.command() == f'uv tool install "an environment" --with {target}'


@pytest.mark.real
@pytest.mark.matrix
def test_the_command_of_an_error_installs_the_extra(installed: Path, tmp_path: Path) -> None:
    """After the installation of a wheel the command of the error can be run as it is, and the extra is there."""
    program = "from rtvi_sync.media import ScreenSource; ScreenSource()"
    python = installed / "python"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(words: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=4 * GUARD, **options
        )

    before = run([python, "-c", program])
    command = before.stderr.strip().rpartition("Install it with: ")[2]
    done = run(command, shell=True)
    assert done.returncode == 0, done.stdout + done.stderr
    after = run([python, "-c", "import mss"])
    assert after.returncode == 0, after.stderr
    run([sys.executable, "-m", "pip", "--python", str(python), "uninstall", "-y", "mss"])


@pytest.mark.real
def test_the_wheel_has_all_files(installed: Path) -> None:
    """The wheel has every file of the package, those that are no modules too."""
    (folder,) = [*installed.parent.glob("[Ll]ib/python*/site-packages"), *installed.parent.glob("Lib/site-packages")]

    def files(root: Path) -> set[str]:
        found = (path.relative_to(root) for path in (root / "rtvi_sync").rglob("*") if path.is_file())
        return {path.as_posix() for path in found if "__pycache__" not in path.parts}

    assert files(ROOT) - files(folder) == {"rtvi_sync/cli/make_speech.sh"}  # which makes speech.wav
