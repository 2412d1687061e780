"""The files for language models: `llms.txt`, an index of the pages, and `llms-full.txt`, the text for programming.

The build of the site writes both into its root; `python -m tools.llms FOLDER` writes them alone. The second one has
each page of Start and Guides except one, and the classes by signature and docstring, because the pages of the
reference have only their names.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, ForwardRef

import attrs

import rtvi_sync
from rtvi_sync import Payload

DOCS: Final = Path(__file__).parents[1] / "docs"
SITE: Final = ""  # the address of the site with a slash at its end, once it has one; until then links are relative
LIMIT: Final = 300_000  # bytes of `llms-full.txt`
GROUPS: Final = {"start": "Start", "guides": "Guides", "reference": "Reference", "background": "Optional"}
_FIRST: Final = "guides/errors.md"  # the page that agents most often need
# What is described whole; of everything else the first sentence is here.
_WHOLE: Final = (
    "connect",
    "Turn",
    "Expect",
    "Reply",
    "run_many",
    "Row",
    "Percentiles",
    "ClientStats",
    "WavSink",
    "WavSource",
    "RTVIClient",
    "RTVIClient.ask",
    "RTVIClient.barge_in",
    "RTVIClient.listen",
    "RTVIClient.on",
    "Report.__getitem__",
    "Report.to_json",
)
# The guides that the file leaves to the site: the classes of this one are left out, too.
PAGES_LEFT_OUT: Final = (DOCS / "guides/transport.md",)
# What the file leaves to the reference, by its use.
LEFT_OUT: Final = {
    "in a transport of your own": (
        *("Transport", "TransportOptions", "MediaPort", "Track", "AudioTrack", "VideoTrack", "TrackFrames", "Tracks"),
        *("ParticipantTracks", "AbortController", "AbortSignal", "ProxyConnection"),
    ),
    "with bots of RTVI 1.x": (
        *("ActionArgument", "ActionDescription", "ActionResponseData", "ActionsAvailableData", "ConfigAvailableData"),
        *("ConfigData", "ConfigDescription", "ConfigOption", "OptionDescription", "RTVIActionRequestData"),
        *("RTVIActionResponse", "RTVIClientConfigOption", "RTVIClientHelper", "LLMHelper", "StorageItemStoredData"),
    ),
    "in reports of jobs and metrics": (
        *("UIJobCompletedEnvelope", "UIJobGroupCompletedEnvelope", "UIJobGroupData", "UIJobGroupStartedEnvelope"),
        *("UIJobUpdateEnvelope", "PipecatMetricData", "STTUsageData", "STTUsageMetricData", "TTFAMetricData"),
        *("TTFATMetricData",),
    ),
    "in handlers of an embedded bot": ("BotSession",),
    "in statistics": ("ClientStats", "TransportStats", "PipecatMetricsData", "LLMTokenUsageData", "RowAudio"),
    "in tests without a network": ("MemoryTransport", "ProviderAPI"),
    "in place of keyword arguments": ("RTVIClientOptions",),
}
_MODULES: Final = ("rtvi_sync", "rtvi_sync.media", "rtvi_sync.testing")
# Read as source: their packages may be missing, and Locust changes the process that imports it.
_SOURCES: Final = {
    "rtvi_sync.flask": "flask.py",
    "rtvi_sync.django": "django.py",
    "rtvi_sync.locust": "locust/user.py",
}
_NAMES: Final = frozenset(name for module in _MODULES for name in importlib.import_module(module).__all__)
_HEAD: Final = """\
# rtvi_sync

> Talk to an RTVI voice bot, such as one built with Pipecat, from ordinary Python: call a method, get the answer, no \
asyncio.

Install it from a clone with `pip install .` (Python 3.10 or later; there is no release on PyPI yet).
`with connect("http://localhost:7860") as client:` connects, and \
`client.ask("...")` returns a `Turn`. It has `bot_text`, `user_text`, `function_calls`, `audio`, latencies in seconds, \
and `expect(...)`, which checks it.
Calls block; every method may be called on any thread.
"""
_QUOTED: Final = 'Titles in quotation marks, such as ("Connect to a bot"), name other pages of this file.'


def index() -> str:
    """Return `llms.txt`."""
    lines = [_HEAD, f"- [All of it in one file]({SITE}llms-full.txt): Start, Guides, and every public class", ""]
    for folder, title in GROUPS.items():
        lines.append(f"## {title}\n")
        lines += [f"- [{title_of(page)}]({SITE}{address(page)}): {summary_of(page)}" for page in pages(folder)]
        lines.append("")
    return "\n".join(lines)


def full() -> str:
    """Return `llms-full.txt`: each page of Start and Guides, but for a few, and the public names."""
    taken = [page for folder in ("start", "guides") for page in pages(folder) if page not in PAGES_LEFT_OUT]
    left_out = "\n".join(
        [f"Used {use}, and described in the reference only: {', '.join(names)}." for use, names in LEFT_OUT.items()]
        + [f"Only in the site: {title_of(page)}, {SITE}{address(page)}." for page in PAGES_LEFT_OUT]
    )
    texts = (_plain(page, taken) for page in taken)
    return "\n\n".join([_HEAD.strip(), _QUOTED, *texts, "# Public names", left_out, *described()]) + "\n"


def _plain(page: Path, taken: Sequence[Path]) -> str:
    """Return the text of a page, with the titles of other pages in place of links."""

    def named(link: re.Match[str]) -> str:
        text, target = link.groups()
        title = title_of(linked) if (linked := (page.parent / target).resolve()) in taken and linked != page else text
        return text if title.lower() in text.lower().replace("`", "") else f'{text} ("{title}")'

    text = re.sub(r"^<!-- .* -->\n", "", page.read_text("utf-8"), flags=re.MULTILINE).strip()
    return re.sub(r"!?\[([^\]]*)\]\((?=#|[^)\s]*(?:\.md|\.png|/))(?!https?:)([^)#\s]*)[^)\s]*\)", named, text)


def pages(folder: str) -> list[Path]:
    """Return the pages of a group, in the order of the tables of contents; errors are the first of the guides."""
    found = dict.fromkeys(
        page
        for source in (DOCS / "index.md", DOCS / folder / "index.md")
        if source.exists()
        for entry in entries(source)
        if (page := (source.parent / f"{entry}.md")).parent == DOCS / folder and page.name != "index.md"
    )
    return sorted(found, key=lambda page: page != DOCS / _FIRST)


def entries(source: Path) -> Iterator[str]:
    """Return the entries of a page's tables of contents."""
    for body in re.findall(r"^```\{toctree\}\n(.*?)^```", source.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        yield from (line for line in body.splitlines() if line and not line.startswith(":"))


def address(page: Path) -> str:
    """Return the address of a page in the site."""
    return page.relative_to(DOCS).with_suffix(".html").as_posix()


def title_of(page: Path) -> str:
    """Return the title of a page."""
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ").replace("`", "")


def summary_of(page: Path) -> str:
    """Return one sentence about a page: the docstring's first line of a class, or the first line of text."""
    text = page.read_text("utf-8").partition("\n")[2]
    named = re.findall(r"^\.\. auto(?:class|function):: ([\w.]+)", text, re.MULTILINE)
    if len(named) == 1:
        module, _, name = named[0].rpartition(".")
        return first_sentence(inspect.getdoc(getattr(importlib.import_module(module), name)) or "")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = (line for line in prose.splitlines() if re.match(r"[\w`*\[]", line))
    return first_sentence(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", next(lines, "")))


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, in one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", paragraph, maxsplit=1)[0].rstrip(":")


def described() -> Iterator[str]:
    """Return each public name with its signature, its docstring, and its members."""
    left_out = {name for names in LEFT_OUT.values() for name in names}
    for module in map(importlib.import_module, _MODULES):
        yield f"## {module.__name__}"
        for name in module.__all__:
            value = getattr(module, name)
            if name not in left_out and (inspect.isclass(value) or inspect.isfunction(value)):
                yield from _described(name, value)
    for name, file in _SOURCES.items():
        yield f"## {name}"
        yield from _described_source(Path(rtvi_sync.__file__).parent / file)


def _described(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}{_signature(value)}{_bases(value)}\n\n{_text(name, value)}".rstrip()
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return
    if issubclass(value, Enum):
        yield f"One of: {', '.join(map(str, (member.value for member in value)))}"
    for member, found in inspect.getmembers(value):
        if _is_own(value, member) and (isinstance(found, property) or inspect.isroutine(found)):
            text = _text(f"{name}.{member}", found)
            if text:
                yield f"{name}.{member}{' (property)' if isinstance(found, property) else _signature(found)}\n{text}"


def _described_source(path: Path) -> Iterator[str]:
    """Return what is public in a module, from its source."""
    module = ast.parse(path.read_text("utf-8"))
    yield ast.get_docstring(module) or ""
    for cls in (node for node in module.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"):
        functions = [node for node in cls.body if isinstance(node, ast.FunctionDef)]
        made = next((_source_signature(node) for node in functions if node.name == "__init__"), "()")
        yield f"### {cls.name}{made}\n\n{_in_lines(ast.get_docstring(cls))}"
        for node in functions:
            if node.name[0] != "_":
                is_property = any(ast.unparse(each) == "property" for each in node.decorator_list)
                after = " (property)" if is_property else _source_signature(node)
                yield f"{cls.name}.{node.name}{after}\n{first_sentence(ast.get_docstring(node) or '')}"


def _source_signature(function: ast.FunctionDef) -> str:
    return f"({ast.unparse(function.args).removeprefix('self').removeprefix(', ')})"


def _is_own(cls: type, member: str) -> bool:
    """Return whether a member is public, and of the class; `RTVIClient` consists of its bases."""
    owner = next((base for base in cls.__mro__ if member in vars(base)), object)
    is_inherited = owner is not cls and cls is not rtvi_sync.RTVIClient
    is_again = any(hasattr(base, member) for base in cls.__mro__[1:] if base.__name__ in _NAMES)
    return not (member.startswith("_") or is_inherited or is_again) and owner.__module__.startswith("rtvi_sync")


def _bases(value: Any) -> str:
    """Return the public bases of a class, for readers who catch errors or know the members of a base."""
    bases = value.__bases__ if inspect.isclass(value) else ()
    names = [
        base.__name__
        for base in bases
        if base is not Payload and (base.__name__ in _NAMES or issubclass(base, Exception))
    ]
    return f" extends {', '.join(names)}" if names else ""


def _text(name: str, value: Any) -> str:
    text = _in_lines(inspect.getdoc(value))
    is_whole = name in _WHOLE or (inspect.isclass(value) and issubclass(value, BaseException))
    return text if is_whole else first_sentence(text)


def _in_lines(docstring: str | None) -> str:
    """Return a docstring with one line for each argument."""
    paragraphs = (docstring or "").split("\n\n")
    is_list = re.compile(r"(?:Args|Attributes|Returns|Raises):\n").match
    return "\n\n".join(re.sub(r"\n {8,}", " ", part) if is_list(part) else part for part in paragraphs)


class _Code:
    """Part of a signature, as it is to be written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, (BaseException, Enum)):
        return ""  # the package makes them
    hidden = {"self", "cls", *(["extra"] if inspect.isclass(value) and issubclass(value, Payload) else ())}
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    empty = inspect.Parameter.empty
    factories = {
        field.alias: field.default.factory
        for field in (attrs.fields(value) if inspect.isclass(value) and attrs.has(value) else ())
        if isinstance(field.default, attrs.Factory)  # type: ignore[arg-type]
    }
    parameters = [
        one.replace(
            default=empty if one.default is empty else _Code(_default(one.default, factories.get(one.name))),
            annotation=empty if one.annotation is empty else _Code(_annotation(one.annotation)),
        )
        for one in signature.parameters.values()
        if one.name not in hidden
    ]
    returns = signature.return_annotation
    returns = empty if inspect.isclass(value) or returns in (empty, None, "None") else _Code(_annotation(returns))
    return str(signature.replace(parameters=parameters, return_annotation=returns))


def _default(value: Any, factory: Any) -> str:
    """Return how a default is written; "..." for one that isn't short."""
    if value is attrs.NOTHING:
        return repr(factory()) if factory in (dict, list, set, tuple) else "..."
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    text = getattr(value, "__name__", "") or repr(value)
    return text if len(text) <= 40 and "<" not in text else "..."


def _annotation(value: Any) -> str:
    if isinstance(value, ForwardRef):
        value = value.__forward_arg__
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return re.sub(r"\b(?:rtvi_sync|typing|collections|contextlib)\.(?:\w+\.)*(?=\w)", "", text)


def write(folder: Path) -> None:
    """Write both files into a folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath("llms.txt").write_text(index(), "utf-8")
    folder.joinpath("llms-full.txt").write_text(full(), "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
