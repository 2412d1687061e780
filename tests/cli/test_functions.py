from __future__ import annotations

from pathlib import Path

import pytest

from rtvi_sync.cli.functions import function_at

pytestmark = pytest.mark.inside


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a module, whose import is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["."])
    (tmp_path / "my_checks.py").write_text(
        "import my_helper\nnumber = 5\nclass Of:\n    judge = staticmethod(len)\njudge = len\n"
    )
    (tmp_path / "my_helper.py").write_text("")
    (tmp_path / "my_broken.py").write_text("import no_such_module_at_all\n")
    for name in ("my_checks", "my_helper", "my_broken"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("place", ["my_checks:judge", "my_checks.py:judge", "my_checks:Of.judge"])
def test_places(place: str) -> None:
    """A function is named by a module of the current folder, or by a file."""
    assert function_at(place, "--judge") is len


def test_a_file_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A file may import modules beside it."""
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert function_at(f"{folder / 'my_checks.py'}:judge", "--judge") is len


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("judge", "name a file and a function"),
        (":judge", "name a file and a function"),
        ("my_checks:", "name a file and a function"),
        ("my_checks:number", "has no function 'number'"),
        ("my_checks:other", "has no function 'other'"),
        ("my_missing:judge", "no module 'my_missing'"),
    ],
)
def test_mistakes(place: str, told: str) -> None:
    """The error names the option and the fault."""
    with pytest.raises(ValueError, match=told) as caught:
        function_at(place, "--judge")
    assert str(caught.value).startswith("--judge")


def test_a_module_that_ends_the_program(folder: Path) -> None:
    """If a module ends the program, its status, which may be 0, is not the command's."""
    (folder / "my_checks.py").write_text("raise SystemExit(0)\n")
    for place in ("my_checks.py:judge", "my_checks:judge"):
        with pytest.raises(ValueError, match=r"--judge: my_checks(\.py)? ends the program when it is imported"):
            function_at(place, "--judge")


def test_functions_of_one_file(folder: Path) -> None:
    """Functions of one file share the objects that the file has loaded, such as a model."""
    (folder / "my_checks.py").write_text("heard = []\njudge = heard.append\ntts = heard.copy\n")
    function_at("my_checks.py:judge", "--judge")("Hello")
    assert function_at("my_checks.py:tts", "--tts")() == ["Hello"]


def test_what_a_module_lacks() -> None:
    """The missing import of a module is not taken for the module."""
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        function_at("my_broken:judge", "--judge")
    with pytest.raises(FileNotFoundError):
        function_at("my_missing.py:judge", "--judge")
