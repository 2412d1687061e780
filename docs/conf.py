"""How Sphinx makes the site of these pages, for `python3 run.py docs`."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import attrs
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.util.logging import getLogger

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import rtvi_sync  # noqa: E402
from tools import llms, site_check  # noqa: E402
from tools.environments import read_project  # noqa: E402

project = "rtvi_sync"
author = "the authors of rtvi_sync"
version = release = rtvi_sync.__version__
html_title = f"rtvi_sync {version}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
exclude_patterns: list[str] = []
if (
    "SITE_PREFIX" in os.environ
):  # the path of the site on its host, for 404.html; Read the Docs has a variable of its own
    notfound_urls_prefix = os.environ["SITE_PREFIX"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "notfound.extension",
]
highlight_language = "text"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
copybutton_exclude = ".linenos, .gp, .go"

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
# All members, also of private bases. `skip_member()` leaves out some, and all but those of a page's `:members:`.
autodoc_default_options = {"inherited-members": "object"}
autodoc_mock_imports = ["locust"]  # importing it patches the sockets of this process
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
# Types that have a short name in the source and a long meaning.
autodoc_type_aliases = {
    name: name
    for name in (
        "CamChoice",
        "ExpectedCalls",
        "MicChoice",
        "Milliseconds",
        "SpeakerChoice",
        "Texts",
        "Timeout",
        "Transcriber",
        "TransportName",
        "TurnStatus",
    )
}

nitpicky = True
# Bots and sites of the reader's machine; no account has the repository yet.
linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1)", r"https://github\.com/OWNER/"]
linkcheck_timeout = 20
linkcheck_rate_limit_timeout = 60

REPOSITORY = read_project(Path(sys.executable))["project"]["urls"]["Repository"]
_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)((?:#[^)\s]*)?)(?=\))")
_FILE = re.compile(r"\[[\w/-]+\.md\]\((?!\.\./\.\./)")
_PAGE_LINK = re.compile(r"\[[^\]]+\]\((?!\w+:)(?!\.\./\.\./)(?=[^)#\s]+\.md\))")
_SPAN = re.compile(r"(?<![`:\\\w])`([^`\n]+)`(?!`)")
_PAGE = re.compile(r"docs/([a-z]+/[a-z-]+)\.md")
_FIELDS = re.compile(r"^( +)(\w+(?:, \w+)+): (.*)$")
_FIELD = re.compile(r"^    (\w+(?:, \w+)*)(?: \(\w+\))?: ")
_LINK_NAME = re.compile(r"^(:\w+ \w+)_:")
_MAKER = re.compile(r"\b[Mm]ade by `")
_LONG = 40  # characters of a default
_SECTION = re.compile(r"\s*(?:Args|Attributes|Example|Raises|Returns|Yields|Note)s?:")
_COLON = "\ue000"
_UNIT = re.compile(r"^( +[\w, ]+) \((seconds|milliseconds|hertz|bytes)\): ")
_MODULES = ("rtvi_sync", "rtvi_sync.media", "rtvi_sync.media.convert", "rtvi_sync.testing")


def link_to_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """Let the links that leave this folder lead to the repository, and show titles in place of the names of files.

    A page of the reference shows the titles of all pages that it names, because the guides change their titles.
    """
    folder = PurePosixPath("docs", page).parent

    def target(match: re.Match[str]) -> str:
        parts: list[str] = []
        for part in (folder / match[1]).parts:
            if part == "..":
                parts.pop()
            else:
                parts.append(part)
        return match[0] if parts[:1] == ["docs"] else f"{REPOSITORY}/blob/main/" + "/".join(parts) + match[2]

    named = _PAGE_LINK if page.startswith("reference/") else _FILE
    source[0] = _LINK.sub(target, named.sub("[](", source[0]))


def _public() -> dict[str, str]:
    """Return the address of each public name, by the name."""
    found = {}
    for module in _MODULES:
        for name in importlib.import_module(module).__all__:
            found.setdefault(name, f"{module}.{name}")
    return found


PUBLIC = _public()


def address_of(text: str, owner: str) -> str | None:
    """Return the address of a name in a docstring: a public name, its member, or a member of the docstring's class."""
    path = text.split("(", 1)[0]
    if not re.fullmatch(r"[A-Za-z_][\w.]*", path):
        return None
    name, _, member = path.removeprefix("rtvi_sync.").partition(".")
    if name == "client":
        name = "RTVIClient"
        if not member:
            return None
    if name in PUBLIC:
        return member_address(PUBLIC[name], member) if member else PUBLIC[name]
    if member or "(" not in text:
        return None
    # A member of the class, or of the method's class.
    return member_address(owner, name) or member_address(owner.rpartition(".")[0], name)


def member_address(place: str, member: str) -> str | None:
    """Return the address of a class's member that has a docstring: where `skip_member()` lets it be shown."""
    module, _, name = place.rpartition(".")
    try:
        owner = getattr(importlib.import_module(module), name)
        found = getattr(owner, member)
    except (ImportError, AttributeError, ValueError):
        return None
    is_member = isinstance(owner, type) and (callable(found) or isinstance(found, property))
    if not is_member or member.startswith("_") or not found.__doc__:
        return None
    bases = (base.__name__ for base in owner.__mro__ if hasattr(base, member))
    place = [place, *(PUBLIC[base] for base in bases if base in PUBLIC)][-1]
    return f"{place}.{member}"


def prepare_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the package's docstrings into napoleon's form: references, code, and one attribute a line."""
    if name == "rtvi_sync.RTVIClient" or is_made_by_the_package(obj):
        lines[:] = without_arguments(lines)
    if what == "class" and attrs.has(obj):
        lines[:] = with_inherited_attributes(obj, lines)
    if what in ("class", "exception") and (bases := list(public_bases(obj))):
        lines[:0] = [f"Extends {', '.join(f'`{base}`' for base in bases)}.", ""]
    lines[:] = with_code_blocks(lines)

    def span(match: re.Match[str]) -> str:
        address = address_of(match[1], name)
        text = f":py:obj:`{match[1]} <{address}>`" if address and address != name else f"``{match[1]}``"
        return text + "\\ " * match.string[match.end() : match.end() + 1].isalnum()

    prepared: list[str] = []
    for line in (_UNIT.sub(r"\1: (\2) ", line) for line in in_long_lines(lines)):  # napoleon takes a unit for a type
        row = _FIELDS.match(line)
        for one in row[2].split(", ") if row else [""]:
            text = _SPAN.sub(span, f"{row[1]}{one}: {row[3]}" if row else line)
            prepared.append(_PAGE.sub(r":doc:`/\1`", text))
    if what in ("property", "attribute", "data") and prepared:
        prepared[0] = prepared[0].replace(": ", _COLON)  # napoleon takes the words before a colon for a type
    lines[:] = prepared


def restore_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put the colons back that napoleon must not see, and escape names like `for_`, which reST takes for links."""
    lines[:] = [_LINK_NAME.sub(r"\1\_:", line.replace(_COLON, ": ")) for line in lines]


def in_long_lines(lines: list[str]) -> list[str]:
    """Return a docstring with one line for each text that several names share."""
    joined: list[str] = []
    for line in lines:
        row = _FIELDS.match(joined[-1]) if joined else None
        if row and line.startswith(row[1] + " "):
            joined[-1] += " " + line.strip()
        else:
            joined.append(line)
    return joined


def attributes(lines: list[str]) -> list[tuple[set[str], list[str]]]:
    """Return names and lines of each entry of a docstring's section of attributes."""
    entries: list[tuple[set[str], list[str]]] = []
    for line in lines[lines.index("Attributes:") + 1 :] if "Attributes:" in lines else ():
        if line and not line.startswith(" "):
            break
        if field := _FIELD.match(line):
            entries.append(({*field[1].split(", ")}, [line]))
        elif line:
            entries[-1][1].append(line)
    return entries


def attribute_names(cls: type) -> set[str]:
    """Return the names that the docstring of a class describes as its attributes."""
    return {name for names, _ in attributes((inspect.getdoc(cls) or "").splitlines()) for name in names}


def with_inherited_attributes(cls: type, lines: list[str]) -> list[str]:
    """Add the attributes that base classes without a page describe."""
    own = attribute_names(cls)
    inherited = [
        line
        for base in reversed(cls.__mro__[1:])
        if base.__name__ not in PUBLIC and attrs.has(base)
        for names, entry in attributes((inspect.getdoc(base) or "").splitlines())
        if not names & own
        for line in entry
    ]
    if not inherited or inspect.getdoc(cls) == inspect.getdoc(cls.__mro__[1]):
        return lines
    if "Attributes:" not in lines:
        return [*lines, "", "Attributes:", *inherited, ""]
    start = lines.index("Attributes:") + 1
    return [*lines[:start], *inherited, *lines[start:]]


def with_code_blocks(lines: list[str]) -> list[str]:
    """Mark the indented blocks of a docstring as code, except in its sections."""
    marked = []
    for number, line in enumerate(lines):
        marked.append(line)
        indent = len(line) - len(line.lstrip())
        introduces = line.endswith(":") or (line and not indent)
        blank, following = [*lines[number + 1 : number + 3], "", ""][:2]
        if (
            introduces
            and not _SECTION.fullmatch(line)
            and not blank
            and re.match(rf" {{{indent + 4}}} *[^ *]", following)
        ):
            marked += ["", " " * indent + ".. code-block:: python"]
    return marked


def skip_member(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out a member that is shown elsewhere: as an attribute of the class, or by a base that has a page.

    A page may also list the members to show: `:members:`.
    """
    document = app.env.current_document
    if skip or not document.autodoc_class:
        return None
    owner = getattr(importlib.import_module(document.autodoc_module), document.autodoc_class)
    if options.members is not None:
        return name not in options.members
    bases = (
        base for base in owner.__mro__[1:] if base.__name__ in PUBLIC or base.__module__.split(".")[0] != "rtvi_sync"
    )
    return name in attribute_names(owner) or any(hasattr(base, name) for base in bases)


def public_bases(cls: type) -> Iterator[str]:
    """Return the nearest bases of a class that readers know: those with a page, and exceptions of Python."""
    for base in cls.__bases__:
        if base is rtvi_sync.Payload:
            continue  # the page of messages says it once
        if base.__name__ in PUBLIC or (issubclass(base, Exception) and base.__module__ == "builtins"):
            yield base.__name__
        else:
            yield from public_bases(base)


def is_made_by_the_package(obj: Any) -> bool:
    """Return whether a class has no constructor for readers: its docstring says "made by"."""
    return isinstance(obj, type) and bool(_MAKER.search(inspect.getdoc(obj) or ""))


def shorten_signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:
    """Remove from a signature the parts that only type checkers need, and all of one that readers never use."""
    if signature is None:
        return None
    is_a_class = isinstance(obj, type) and what in ("class", "exception")
    if is_a_class and (issubclass(obj, Enum) or Protocol in obj.__bases__ or is_made_by_the_package(obj)):
        return "", returns
    is_payload = is_a_class and issubclass(obj, rtvi_sync.Payload) and obj is not rtvi_sync.Payload
    returns = {"ClientT": "RTVIClient", "TransportT": "Transport"}.get(returns, returns)
    return readable(signature, hidden={"extra"} if is_payload else set()), returns


def readable(signature: str, hidden: set[str]) -> str:
    """Return a signature without private and hidden parameters, and without defaults that say nothing or are long.

    Sphinx prints a signature that is no Python, as with the `repr()` of a function, as it is and in one line.
    """
    signature = re.sub(r"(\*\*\w+): (?:Unpack\[\w+\]|Never)", r"\1", signature)
    signature = re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", signature)
    signature = re.sub(r"<function [\w.]*<\w+>>|\bNOTHING\b", "...", signature)
    signature = re.sub(r"<function ([\w.]+)>", r"\1", signature)
    function = ast.parse(f"def f{signature}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    found = function.args
    keywords = [
        (arg, default)
        for arg, default in zip(found.kwonlyargs, found.kw_defaults, strict=True)
        if not arg.arg.startswith("_") and arg.arg not in hidden
    ]
    found.kwonlyargs = [arg for arg, _ in keywords]
    found.kw_defaults = [default and short(default) for _, default in keywords]
    found.defaults = [short(default) for default in found.defaults]
    return f"({ast.unparse(found)})"


def short(default: ast.expr) -> ast.expr:
    """Return a default as it is to be shown."""
    is_long = len(ast.unparse(default)) > _LONG or any(isinstance(node, ast.Call) for node in ast.walk(default))
    return ast.Constant(...) if is_long else default


def without_arguments(lines: list[str]) -> list[str]:
    """Leave out the arguments: those of the client have a page, and the package passes the others itself."""
    start = lines.index("Args:") if "Args:" in lines else len(lines)
    end = lines.index("Raises:") if "Raises:" in lines else len(lines)
    return [*lines[:start], *lines[end:]]


def resolve(app: Sphinx, env: Any, node: Any, content: nodes.Element) -> nodes.Element | None:
    """Show a type that has no page here, as of the standard library, without a link and without a warning.

    A name of this package is resolved by its public address, or is an error.
    """
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    name = target.rpartition(".")[2]
    if name in PUBLIC and PUBLIC[name] != target:
        domain = env.get_domain("py")
        found = domain.resolve_xref(env, node["refdoc"], app.builder, "obj", PUBLIC[name], node, content)
        if found is not None:
            return found
    is_annotation = node.get("reftype") == "class"
    return content if is_annotation or not target.startswith("rtvi_sync") else None


def finish(app: Sphinx, error: Exception | None) -> None:
    """Put the files for language models into the site's root, and warn of mistakes in the reference."""
    if error is None and app.builder.name == "html":
        llms.write(app.outdir)
        shutil.rmtree(app.outdir / "_sources", ignore_errors=True)  # Sphinx makes it for `html_copy_source` only
        for fault in site_check.faults(Path(app.outdir)):
            getLogger(__name__).warning(fault)


def setup(app: Sphinx) -> None:
    """Connect the handlers of this file."""
    # Sphinx calls the attributes of a class its variables.
    next(field for field in PyObject.doc_field_types if field.name == "variable").label = "Attributes"
    app.connect("source-read", link_to_repository)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=100)
    app.connect("autodoc-process-docstring", restore_docstring, priority=900)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("missing-reference", resolve)
    app.connect("build-finished", finish)
