"""The options of a client, for type checkers. `python -m tools.option_types` writes `client/option_types.pyi`.

The stub has the keyword arguments of all that makes a client, from the fields of `RTVIClientOptions`. A program that
runs doesn't import it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from rtvi_sync import RTVIClientOptions
from rtvi_sync.client import options

STUB = Path(__file__).parents[1] / "rtvi_sync" / "client" / "option_types.pyi"

_HEAD = '''\
"""The keyword arguments of all that makes a client. Written by `python -m tools.option_types`."""

from typing import TypedDict
'''
_BY_URL = '''
class KeywordOptions(TypedDict, total=False):
    """The options that `RTVIClient.for_url()` and `connect()` take."""

'''
_OTHERS = '''
class ConstructorOptions(KeywordOptions, total=False):
    """The options of the constructor."""

'''


def stub() -> str:
    """Return the text of the stub."""
    types = {field.name: str(field.type) for field in attrs.fields(RTVIClientOptions)}
    by_url = [f"    {name}: {types[name]}\n" for name in types if name not in options.NOT_BY_URL]
    others = [f"    {name}: {types[name]}\n" for name in options.NOT_BY_URL]
    return "".join([_HEAD, *_imports(types.values()), _BY_URL, *by_url, _OTHERS, *others])


def _imports(annotations: Iterable[str]) -> Iterator[str]:
    """Yield the lines that import the names of annotations, from where the module of the options has them."""
    used = {node.id for text in annotations for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    imported = set()
    for node in ast.walk(ast.parse(inspect.getsource(options))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            node.names = [name for name in node.names if name.name in used]
            imported |= {name.name for name in node.names}
            if node.names:
                yield f"{ast.unparse(node)}\n"
    yield f"from .options import {', '.join(sorted(used & vars(options).keys() - imported))}\n"


if __name__ == "__main__":
    STUB.write_text(stub(), "utf-8")
