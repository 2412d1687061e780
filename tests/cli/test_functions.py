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
    with pytest.raises(ValueError, match=r"--judge: the import of my_broken fails:\n(.*\n)*.*no_such_module"):
        function_at("my_broken:judge", "--judge")
    with pytest.raises(FileNotFoundError):
        function_at("my_missing.py:judge", "--judge")


@pytest.mark.parametrize("place", ["my_checks:judge", "my_checks.py:judge"])
@pytest.mark.parametrize(
    ("code", "line", "last"),
    [
        ("\n\nfloat('x')\n", 3, "ValueError: could not convert string to float: 'x'"),
        ("import no_such_module_at_all\n", 1, "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("open('no such file')\n", 1, "FileNotFoundError: [Errno 2] No such file or directory: 'no such file'"),
        ("\n1 / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("\nif\n", 2, "SyntaxError: invalid syntax"),
    ],
)
def test_a_module_that_fails(folder: Path, place: str, code: str, line: int, last: str) -> None:
    """The error has the traceback, in which no frame is this package's."""
    (folder / "my_checks.py").write_text(code)
    with pytest.raises(ValueError, match=r"^--judge: the import of my_checks(\.py)? fails:\n") as caught:
        function_at(place, "--judge")
    lines = str(caught.value).splitlines()
    (frame,) = (each for each in lines if each.startswith("  File "))
    assert f'my_checks.py", line {line}' in frame
    assert lines[-1] == last
