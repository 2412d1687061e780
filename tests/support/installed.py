"""The package as its users have it: its wheel alone in an environment, or extras that are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from rtvi_sync.installation import install_command as install_command
from tests.support.required import missing

ROOT = Path(__file__).parents[2]
SECONDS = 300

#: The modules that each extra brings.
EXTRAS = {
    "audio": ("pyaudio", "soxr", "numpy"),
    "sounddevice": ("sounddevice", "soxr", "numpy"),
    "aec": ("pywebrtc_audio", "soxr", "numpy"),
    "video": ("cv2", "cv2_enumerate_cameras", "numpy"),
    "screen": ("mss",),
    "files": ("soundfile",),
    "cli": ("rich", "prompt_toolkit"),
    "speed": ("orjson",),
    "mcp": ("mcp", "mcp_types"),
}
MODULES = tuple(dict.fromkeys(module for modules in EXTRAS.values() for module in modules))


def without(folder: Path, *modules: str) -> dict[str, str]:
    """Return environment variables for a Python that lacks these modules: files in the folder stand in their place."""
    folder.mkdir(exist_ok=True)
    for module in modules:
        line = f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')\n"
        folder.joinpath(f"{module}.py").write_text(line, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))), "PYTHONIOENCODING": "utf-8"}


def install_wheel(folder: Path) -> Path:
    """Build the wheel, install it without extras into an environment of its own, and return that one's programs."""
    source, wheels, environment = folder / "source", folder / "wheels", folder / "environment"
    shutil.copytree(ROOT / "rtvi_sync", source / "rtvi_sync", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run(*pip, "wheel", "--no-deps", "--wheel-dir", wheels, source)
    _run(sys.executable, "-m", "venv", "--without-pip", environment)
    programs = environment / ("Scripts" if sys.platform == "win32" else "bin")
    _run(*pip, "--python", programs / "python", "install", *wheels.iterdir())
    return programs


def _run(*words: object) -> None:
    # On pip's path, the leftovers of `pip install -e` in the project's folder count as an installed package.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, words)), env=environ, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        missing(f"The wheel cannot be built and installed here: {done.stderr[-500:]}")
