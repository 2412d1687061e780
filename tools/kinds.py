"""The two kinds of tests, and what ties a test to insides of the package. Standard library only.

A test module is *inside* when it is marked so (`pytestmark = pytest.mark.inside`): it tests a part that has an
interface of its own, and may import that part. Every other one is *behaviour*: it imports public names and
`tests/support` only.

    python -m tools.kinds                # the counts
    python -m tools.kinds behaviour      # the files of a kind
    python -m tools.kinds tests/session  # what is wrong below a path
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The modules whose names are public: those of README, docs and samples.
PUBLIC = frozenset(
    {
        "rtvi_sync",
        "rtvi_sync.__main__",
        "rtvi_sync.cli",
        "rtvi_sync.errors",
        "rtvi_sync.events",
        "rtvi_sync.flask",
        "rtvi_sync.locust",
        "rtvi_sync.media",
        "rtvi_sync.media.convert",
        "rtvi_sync.messages",
        "rtvi_sync.notebook",
        "rtvi_sync.recording",
        "rtvi_sync.signals",
        "rtvi_sync.testing",
        "rtvi_sync.testing.faults",
        "rtvi_sync.testing.transport_contract",
    }
)
KINDS = ("behaviour", "inside")
_PATCHING = frozenset({"setattr", "delattr", "setitem", "object"})


@dataclass(frozen=True)
class TestModule:
    """One module of the tests.

    Attributes:
        path: of its file.
        name: under which it is imported.
        private: the private names of the package.
    """

    __test__ = False  # for pytest

    path: Path
    name: str
    private: frozenset[str]

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of its syntax."""
        return list(ast.walk(self.tree))

    @property
    def is_marked(self) -> bool:
        """Whether it is marked as a test of an inside part."""
        return any(
            isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
            and "inside" in {part.attr for part in ast.walk(node.value) if isinstance(part, ast.Attribute)}
            for node in self.tree.body
        )

    @cached_property
    def imports(self) -> frozenset[str]:
        """The names of the modules that it imports; of `from a import b` both `a` and `a.b`."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                package = self.name.split(".")[: -node.level] if node.level else []
                base = ".".join([*package, *([node.module] if node.module else [])])
                found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        return frozenset(found)

    def functions(self) -> list[ast.FunctionDef]:
        """Return its test functions."""
        nodes = (node for node in self.nodes if isinstance(node, ast.FunctionDef))
        return [node for node in nodes if node.name.startswith("test")]

    @cached_property
    def _own_names(self) -> frozenset[str]:
        """The names that it gives to functions, classes and attributes of its own."""
        names = {node.name for node in self.nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        return frozenset(names) | {
            node.attr
            for node in self.nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }

    @cached_property
    def _imported_names(self) -> frozenset[str]:
        """The names that it imports from the package."""
        return frozenset(
            alias.asname or alias.name
            for node in self.nodes
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "rtvi_sync"
            for alias in node.names
        )

    def private_uses(self, part: ast.AST | None = None) -> list[tuple[int, str]]:
        """Return the line and the name of each use of a private name of the package, in a part or in all of it."""
        own = self._own_names
        return sorted(
            (line, name)
            for line, name in _names(self.nodes if part is None else ast.walk(part))
            if name in self.private and name not in own
        )

    def patches(self, part: ast.AST | None = None) -> list[int]:
        """Return the lines that replace something in a module or a class of the package."""
        lines = []
        for node in self.nodes if part is None else ast.walk(part):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            if node.func.attr not in _PATCHING:
                continue
            target = node.args[0]
            while isinstance(target, ast.Attribute):
                target = target.value
            if (isinstance(target, ast.Name) and target.id in self._imported_names) or (
                isinstance(target, ast.Constant) and str(target.value).startswith("rtvi_sync.")
            ):
                lines.append(node.lineno)
        return lines

    def tied(self) -> list[str]:
        """Return the test functions that use a private name or a patch, by themselves or by a function of the file."""
        functions = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        direct = {name for name, node in functions.items() if self.private_uses(node) or self.patches(node)}
        uses = {
            name: {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            | {argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)}
            for name, node in functions.items()
        }
        while more := {name for name in functions if name not in direct and uses[name] & direct}:
            direct |= more
        return sorted(name for name in direct if name.startswith("test"))


def _names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each attribute, imported name, and name that a patch has as a string."""
    for node in nodes:
        if isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "os", "sys")):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rtvi_sync"):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PATCHING:
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value.rpartition(".")[2]


def private_names(root: Path = ROOT) -> frozenset[str]:
    """Return the private names that the package gives to functions, classes, attributes and constants."""
    found: set[str] = set()
    for path in (root / "rtvi_sync").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return frozenset(name for name in found if name.startswith("_") and not name.endswith("_"))


def modules_of_tests(root: Path = ROOT) -> dict[str, TestModule]:
    """Return the modules of `tests` outside `tests/support`, by name."""
    private = private_names(root)
    modules = {}
    for path in sorted((root / "tests").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[1] != "support":
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = TestModule(path, name, private)
    return modules


def inner_imports(module: TestModule, modules: Mapping[str, TestModule], package: Iterable[str]) -> dict[str, str]:
    """Return the modules of the package that are not public and that a test module imports.

    Args:
        module: of the tests.
        modules: all, by name.
        package: the names of the package's modules.

    Returns:
        By name, the module of the tests that imports it: the one given, or one from which it imports.
    """
    known = set(package)
    found: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        current = waiting.pop()
        if current.name in seen:
            continue
        seen.add(current.name)
        found |= dict.fromkeys(sorted(current.imports & known - PUBLIC), current.name)
        waiting += [modules[name] for name in current.imports & modules.keys()]
    return found


def package_modules(root: Path = ROOT) -> list[str]:
    """Return the names of the package's modules."""
    paths = [path.relative_to(root).with_suffix("").parts for path in sorted((root / "rtvi_sync").rglob("*.py"))]
    return [".".join(parts[:-1] if parts[-1] == "__init__" else parts) for parts in paths]


def faults(root: Path = ROOT) -> list[str]:
    """Return one line for each private name that a test uses, and for each module that a test of behaviour imports and
    that is not public."""
    modules, package, lines = modules_of_tests(root), package_modules(root), []
    for module in modules.values():
        path = module.path.relative_to(root).as_posix()
        lines += [f"{path}:{line}: the private name {name}" for line, name in module.private_uses()]
        if module.functions() and not module.is_marked:
            for name, importer in inner_imports(module, modules, package).items():
                by = "" if importer == module.name else f" (by {importer})"
                lines.append(f"{path}: a test of behaviour imports {name}{by}")
    return lines


def counts(root: Path = ROOT) -> list[str]:
    """Return the counts of each kind, a line each."""
    lines = []
    modules = modules_of_tests(root).values()
    for kind in KINDS:
        of_kind = [module for module in modules if (kind == "inside") == module.is_marked]
        figures = {
            "modules": len(of_kind),
            "functions": sum(len(module.functions()) for module in of_kind),
            "tied to insides": sum(len(module.tied()) for module in of_kind),
            "private uses": sum(len(module.private_uses()) for module in of_kind),
            "patches of the package": sum(len(module.patches()) for module in of_kind),
            "lines": sum(module.text.count("\n") for module in of_kind),
        }
        lines.append(f"{kind}: " + ", ".join(f"{count} {what}" for what, count in figures.items()))
    return lines


def main(arguments: list[str]) -> None:
    """Print the counts, the files of a kind, or the faults below the paths given."""
    if not arguments:
        print(*counts(), sep="\n")
    elif arguments[0] in KINDS:
        modules = modules_of_tests().values()
        print(*(m.path.relative_to(ROOT) for m in modules if (arguments[0] == "inside") == m.is_marked), sep="\n")
    else:
        print(*(line for line in faults() if line.startswith(tuple(arguments))), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
