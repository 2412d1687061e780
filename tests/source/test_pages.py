"""What pages and workflows name is there: commands, options, extras, names of the package, files.

A name in backticks is one of the package, of a block of code, which runs, or of another program: `FOREIGN` lists those.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

import run
from rtvi_sync import RTVIClientOptions, RTVIEvent
from tools.reference import MODULES, options_of_commands, options_of_pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page for pattern in ("*.md", "docs/**/*.md", "samples/**/*.md", ".github/**/*.md") for page in ROOT.glob(pattern)
)
USER_PAGES = [
    page
    for page in PAGES
    if page.parent.name in ("start", "guides")
    or page.relative_to(ROOT).as_posix() in ("README.md", "AGENTS.md", "CHANGELOG.md", "docs/index.md")
]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = [ROOT / ".ci" / "run", ROOT / ".ci" / "coverage"]
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OURS = ("tools", "tests", "samples", "benchmarks", "rtvi_sync")
PROGRAM = re.compile(r"(?:\S*/)?rtvi-sync|(?:\S*/)?run\.py|pytest|-m")
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]*)*/(?:[\w.*-]+\.(?:py|md|ya?ml|toml|jsonl?|js))?")
COMMANDS = options_of_commands()
PLUGIN = options_of_pytest()
#: Options of pytest and Locust on pages; those of the package are known by its parsers.
OPTIONS_OF_PYTEST = {"--junitxml", "--showlocals", "--help"}
OPTIONS_OF_LOCUST = {"--users", "--run-time", "--spawn-rate"}
#: Names that pages take from other programs and libraries.
FOREIGN = {
    *("weak", "getLogger", "ProcessPoolExecutor"),  # Blinker and Python
    *(
        "graceful_timeout",
        "max_requests",
        "autoretry_for",
        "soft_time_limit",
        "send_timeout",
    ),  # gunicorn, Celery, nginx
    *("SECURE_PROXY_SSL_HEADER", "LoginRequiredMiddleware", "PermissionDenied"),  # Django
    *("SESSION_COOKIE_SECURE", "TRUSTED_HOSTS", "ProxyFix"),  # Flask
    *("BatchSpanProcessor", "OTLPSpanExporter"),  # OpenTelemetry
    *("BotReady",),  # the JavaScript client
    # Pipecat
    *("enable_tracing", "file_storage", "FileResolver", "send_server_message", "video_in_enabled", "video_out_enabled"),
    *("AlwaysUserMuteStrategy", "FilterIncompleteUserTurnStrategies", "SingleClientWebsocketServerTransport"),
    "DataFrame",  # pandas
}
#: The ends of addresses, which look like folders.
OTHER_FOLDERS = {"connect/", "action/"}
FOREIGN_OPTIONS = {
    *("--preload", "--workers", "--threads", "--worker-class", "--max-requests"),  # gunicorn
    "--max-tasks-per-child",  # Celery
    *("--ws-auth", "--allowed-origins", "--ice-servers"),  # Pipecat's runner
    *("--group", "--system-site-packages", "--device"),  # pip, venv, Docker
    *("--rtvi-accent", "--rtvi-ink", "--rtvi-card"),  # properties of CSS
}


def name_of(page: Path) -> str:
    """Return the name of a test's parameter."""
    return page.relative_to(ROOT).as_posix()


def code_of(page: Path) -> Iterator[str]:
    """Yield the lines of shell in a page: of its blocks, of indented ones, and of spans."""
    text = re.sub(r"<!--.*?-->", "", page.read_text("utf-8"), flags=re.DOTALL)
    for _, kind, block in FENCE.findall(text):
        if kind == "sh":
            yield from lines_of(block)
        elif kind == "yaml":
            yield from lines_of("\n".join(runs_of(block)))
        elif not kind:
            yield from re.findall(r"^ *\$ (.*)", block, re.MULTILINE)  # what a terminal shows
    prose = FENCE.sub("", text)
    yield from re.findall(r"^ {4,}(\S.*)", prose, re.MULTILINE)
    yield from SPAN.findall(prose)


def runs_of(text: str) -> Iterator[str]:
    """Yield the commands of a workflow, or of a part of one."""
    found: list[Any] = [pytest.importorskip("yaml").safe_load(text)]
    for part in found:
        if isinstance(part, dict):
            if isinstance(part.get("run"), str):
                yield part["run"]
            found += part.values()
        elif isinstance(part, list):
            found += part


def lines_of(script: str) -> list[str]:
    """Return the lines of a script, whole."""
    return script.replace("\\\n", " ").splitlines()


def commands(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the words of each command of `rtvi-sync`, `run.py`, pytest and `python -m`, from its name on."""
    for line in lines:
        if not PROGRAM.search(line):
            continue
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.wordchars += "[]{}$@%:,+"
            words = list(lexer)
        except ValueError:  # an apostrophe
            words = line.split()
        while words:
            end = next((n for n, word in enumerate(words) if re.fullmatch(r"[|&;<>()]+", word)), len(words))
            start = next((n for n, word in enumerate(words[:end]) if PROGRAM.fullmatch(word)), None)
            if start is not None:
                yield words[start:end]
            words = words[end + 1 :]


def wrong_words(command: list[str]) -> Iterator[str]:
    """Yield what is wrong with a command: a subcommand, an option, a module or a sample that there is not."""
    program, *words = command
    if program == "-m" and words:
        if words[0] in ("pytest", "rtvi_sync"):
            yield from wrong_words([words[0].replace("_", "-"), *words[1:]])
        elif words[0].partition(".")[0] in OURS:
            path = ROOT.joinpath(*words[0].split("."))
            yield from [] if path.is_dir() or path.with_suffix(".py").exists() else [f"-m {words[0]}"]
        return
    names = [word for word in words[:2] if re.match(r"[a-z]", word)]
    if program == "pytest":
        known = PLUGIN | OPTIONS_OF_PYTEST
    elif program.endswith("rtvi-sync"):
        known = COMMANDS.get(names[0], set()) if names else {"--version", "--help"}
    else:
        known = options_of_run(names)
    options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    if not known:
        yield " ".join([program, *names])
    yield from (f"{program} {option}" for option in sorted(options - known))


def options_of_run(names: list[str]) -> set[str]:
    """Return the options of a command of run.py, whose name may be followed by that of a sample; none if it is none."""
    command, *rest = [*names, ""]
    if command == "sample" and rest[0]:
        program = run.sample_programs().get(rest[0])
        if program is None:
            return set()
        source = program.parent if program.name == "__main__.py" else program
        return options_in(source) | options_in(ROOT / "rtvi_sync" / "locust") | OPTIONS_OF_LOCUST | PLUGIN
    own = {*re.findall(r"--[a-z]+", run.HELP)} | {"--help"}
    if command == "demo":
        return own | COMMANDS["demo"]
    if command == "test":
        return own | PLUGIN | OPTIONS_OF_PYTEST
    if command in run.MODULES:
        return own | options_in(ROOT.joinpath(*run.MODULES[command].split(".")))
    return own if command in run.COMMANDS or not command else set()


def options_in(source: Path) -> set[str]:
    """Return the options that a module, or the modules of a folder, have in their source."""
    files = [*source.rglob("*.py")] if source.is_dir() else [source.with_suffix(".py")]
    return {option for file in files for option in re.findall(r"\"(--[a-z][\w-]*)", file.read_text("utf-8"))}


@pytest.mark.parametrize("page", [*PAGES, *WORKFLOWS, *SCRIPTS], ids=name_of)
def test_its_commands_exist(page: Path) -> None:
    """Each command of a page or a workflow, each of its options, and each extra and group of packages is there."""
    text = page.read_text("utf-8")
    if page.suffix == ".md":
        lines = [*code_of(page)]
    else:
        lines = lines_of("\n".join(runs_of(text)) if page.suffix == ".yml" else text)
    assert [wrong for command in commands(lines) for wrong in wrong_words(command)] == []

    extras = re.findall(r"(?:rtvi_sync|\.|\.whl\)\"?)\[([a-z,]+)\]", text)
    assert {name for names in extras for name in names.split(",")} - keys_of("project.optional-dependencies") == set()
    assert {*re.findall(r"--group (\w+)", text)} - keys_of("dependency-groups") == set()


def keys_of(table: str) -> set[str]:
    """Return the keys of a table in pyproject.toml. Python 3.10 has no parser of such files."""
    text = (ROOT / "pyproject.toml").read_text("utf-8").partition(f"\n[{table}]\n")[2]
    return {*re.findall(r"^([\w-]+) = ", text.partition("\n[")[0], re.MULTILINE)}


@cache
def public_names() -> tuple[set[str], set[str]]:
    """Return the public names, those of the members of public classes included, and the names of parameters."""
    names, parameters = {*dir(builtins), *MODULES}, {*attrs.fields_dict(RTVIClientOptions)}
    names |= {event.snake for event in RTVIEvent}
    modules = (*MODULES, "rtvi_sync.testing.pytest_plugin", "rtvi_sync.testing.faults", "rtvi_sync.cli")
    for module in map(importlib.import_module, modules):
        for name in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
            value = getattr(module, name)
            members = [value, *(getattr(value, member, None) for member in dir(value) if inspect.isclass(value))]
            names |= {name, *(member for member in dir(value) if not member.startswith("_"))}
            for one in value.__mro__ if inspect.isclass(value) else ():
                names |= {*getattr(one, "__annotations__", {})}
            for member in filter(callable, members):
                try:
                    parameters |= {*inspect.signature(member).parameters}
                except (TypeError, ValueError):
                    continue
    return names, parameters


@cache
def other_names() -> set[str]:
    """Return the words that the package has in strings, and the names in its JavaScript and in the blocks of pages."""
    found: set[str] = set()
    for file in (ROOT / "rtvi_sync").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
                found |= {*re.findall(r"\w+", node.value)}
    texts = [file.read_text("utf-8") for file in (ROOT / "rtvi_sync").rglob("*.js")]
    texts += [block for page in PAGES for _, kind, block in FENCE.findall(page.read_text("utf-8")) if kind]
    return found | {name for text in texts for name in re.findall(r"\w+", text)} | FOREIGN


def unknown_names(text: str) -> Iterator[str]:
    """Yield each name in backticks that is none: of a call, a keyword, an attribute, a class or an option."""
    names, parameters = public_names()
    every = names | parameters | other_names()
    for span in SPAN.findall(FENCE.sub("", text)):
        calls = re.findall(r"(?<![\w.-])(?:\w+\.)*(\w+)\(", span)
        keywords = re.findall(r"(?<![\w.-])([a-z_]\w*)=(?!=)", span)
        word = re.fullmatch(r"(?:\w+\.)*(\w*_\w*|[A-Z][a-z]+[A-Z]\w*)", span)
        yield from (f"{name}()" for name in calls if name not in names | other_names())
        yield from (f"{name}=" for name in keywords if name not in parameters | other_names())
        if word and word[1] not in every:
            yield span


@pytest.mark.parametrize("page", USER_PAGES, ids=name_of)
def test_its_names_exist(page: Path) -> None:
    """Each name in backticks is one of the package, of a block of code, or of a program that the page is about."""
    assert [*unknown_names(page.read_text("utf-8"))] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_its_options_exist(page: Path) -> None:
    """Each option in backticks is one of the package, of this sample, or of a program that `FOREIGN_OPTIONS` lists."""
    spans = SPAN.findall(FENCE.sub("", page.read_text("utf-8")))
    known = PLUGIN | options_of_run([]) | OPTIONS_OF_PYTEST | OPTIONS_OF_LOCUST | FOREIGN_OPTIONS
    known |= {option for options in COMMANDS.values() for option in options}
    known |= options_in(ROOT / "rtvi_sync" / "locust")
    known |= options_in(page.parent) if "samples" in page.parts else set()
    options = {option[0] for span in spans if (option := re.match(r"--[a-z][\w-]*", span))}
    assert options - known == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_its_paths_exist(page: Path) -> None:
    """Each path in backticks is there, from the root, the package or the page."""
    spans = SPAN.findall(FENCE.sub("", page.read_text("utf-8")))
    roots = (ROOT, ROOT / "rtvi_sync", page.parent)
    paths = {span for span in spans if PATH.fullmatch(span)} - OTHER_FOLDERS
    assert [path for path in sorted(paths) if not any(any(root.glob(path)) for root in roots)] == []


def test_pages_that_code_names_exist() -> None:
    """Each page that a docstring, a comment or an error names is there."""
    files = [ROOT / "run.py", *(ROOT / "docs").glob("*.py")]
    for folder in ("rtvi_sync", "tests", "tools", "samples", "benchmarks"):
        files += [file for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".js", ".html")]
    named = {
        (name_of(file), page)
        for file in files
        for page in re.findall(r"\bdocs/\w+/[\w-]+\.md", file.read_text("utf-8"))
    }
    assert len(named) > 20
    assert [(file, page) for file, page in sorted(named) if not ROOT.joinpath(page).exists()] == []
