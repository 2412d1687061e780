"""The two kinds of tests: of behaviour, and of a part with an interface of its own."""

from __future__ import annotations

from tools.kinds import faults, modules_of_tests, private_names


def test_no_test_knows_an_inside() -> None:
    """No test uses a private name of the package, and a test of behaviour imports public names and `tests/support`."""
    assert faults() == []


def test_the_names_of_the_package_are_found() -> None:
    """The private names are those of the package's classes and modules, and the modules those of all tests."""
    assert {"_manager", "_dispatcher"} & private_names()
    assert "tests.source.test_kinds" in modules_of_tests()
