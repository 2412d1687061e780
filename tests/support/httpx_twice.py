"""A fixture of httpx2: httpx by another name, with the same interface and no class in common."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import httpx
import pytest


@pytest.fixture
def httpx2() -> Iterator[ModuleType]:
    """Yield httpx2, or its substitute if it is not installed: httpx, imported once more by that name."""
    if importlib.util.find_spec("httpx2") is not None:
        yield importlib.import_module("httpx2")
        return
    spec = importlib.util.spec_from_file_location(
        "httpx2", httpx.__file__, submodule_search_locations=[*httpx.__path__]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["httpx2"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "httpx2"]:
            del sys.modules[name]
