"""The two kinds of tests, and the private names that tie a test to the package. Standard library only.

A test module is *inside* when it is marked so (`pytestmark = pytest.mark.inside`): it tests a part that has an
interface of its own, and may import that part. Every other one is *behaviour*: it imports public names and
`tests/support` only.

    python -m tools.kinds                # the counts
    python -m tools.kinds behaviour      # the files of a kind
    python -m tools.kinds tests/session  # the faults below a path
"""

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The modules whose names are public, from README, docs and samples.
PUBLIC = frozenset(
    {
        "rtvi_sync",
        "rtvi_sync.__main__",
        "rtvi_sync.cli",
        "rtvi_sync.errors",
        "rtvi_sync.events",
        "rtvi_sync.django",
        "rtvi_sync.flask",
        "rtvi_sync.locust",
        "rtvi_sync.media",
        "rtvi_sync.media.convert",
        "rtvi_sync.messages",
        "rtvi_sync.notebook",
        "rtvi_sync.otel",
        "rtvi_sync.recording",
        "rtvi_sync.signals",
        "rtvi_sync.testing",
        "rtvi_sync.testing.faults",
        "rtvi_sync.testing.scenarios",
        "rtvi_sync.testing.transport_contract",
    }
)
KINDS = ("behaviour", "inside")
_PATCHING = frozenset({"setattr", "delattr", "setitem", "object", "patch"})
#: Functions that take the name of an attribute as a string.
_NAMING = _PATCHING | {"getattr", "hasattr", "attrgetter"}
#: Of their attributes, those with an underscore are not the package's.
_OTHERS = ("self", "cls", "os", "sys")
#: In a string, which may be a script or a part of one: a name after a dot.
_DOTTED = re.compile(r"(?<!\bself)(?<!\bcls)(?<!\bos)(?<!\bsys)\.(_\w+)")
#: In a string: an import from the package, with the module and the names.
_IMPORTED = re.compile(r"\bfrom +(rtvi_sync[\w.]*) +import +([\w, ]*)|\bimport +(rtvi_sync[\w.]*)")
_KEPT = (ast.Attribute, ast.Call, ast.ClassDef, ast.Constant, ast.Expr, ast.FunctionDef, ast.Import, ast.ImportFrom)
#: Folders of `tests` that know insides so that no test has to: probes, and changes to the source.
APART = ("support", "mutants")


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
        """The nodes of its syntax that show the names it uses."""
        return [node for node in ast.walk(self.tree) if isinstance(node, (*_KEPT, ast.Subscript))]

    @cached_property
    def strings(self) -> list[ast.Constant]:
        """Its strings, without those that stand alone, as docstrings do."""
        alone = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        strings = (node for node in self.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        return [node for node in strings if id(node) not in alone]

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
        """The names of the modules that it imports, also in a script; of `from a import b` both `a` and `a.b`."""
        found: set[str] = set()
        for string in self.strings:
            for base, names, module in _IMPORTED.findall(str(string.value)):
                found |= {base or module} | {f"{base}.{name.strip()}" for name in names.split(",")}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                package = self.name.split(".")[: -node.level] if node.level else []
                base = ".".join([*package, *([node.module] if node.module else [])])
                found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Call) and _last_name(node.func) in ("import_module", "__import__") and node.args:
                found |= {str(part.value) for part in node.args if isinstance(part, ast.Constant)}
        return frozenset(found)

    def functions(self) -> list[ast.FunctionDef]:
        """Return its test functions."""
        nodes = (node for node in self.nodes if isinstance(node, ast.FunctionDef))
        return [node for node in nodes if node.name.startswith("test")]

    @cached_property
    def _imported_names(self) -> frozenset[str]:
        """The names that it imports from the package."""
        return frozenset(
            alias.asname or alias.name.partition(".")[0]
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if (getattr(node, "module", None) or alias.name).partition(".")[0] == "rtvi_sync"
        )

    @cached_property
    def private_uses(self) -> list[tuple[int, str]]:
        """The line and the name of each use of a private name of the package: an attribute, an import, the
        string for `getattr` or `vars`, and a name in a string that is a script or the target of a patch."""
        found: list[tuple[int, str]] = []
        for node in self.nodes:
            if isinstance(node, ast.Attribute):
                if not (isinstance(node.value, ast.Name) and node.value.id in _OTHERS):
                    found.append((node.lineno, node.attr))
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rtvi_sync"):
                found += [(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.Call) and _last_name(node.func) in _NAMING:
                found += [(part.lineno, str(part.value)) for part in node.args if isinstance(part, ast.Constant)]
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                of = node.value.func if isinstance(node.value, ast.Call) else node.value
                if _last_name(of) in ("vars", "__dict__"):
                    found.append((node.lineno, str(node.slice.value)))
        for string in self.strings:
            text = str(string.value)
            if "_" in text:
                names = _DOTTED.findall(text)
                names += [name.strip() for _, group, _ in _IMPORTED.findall(text) for name in group.split(",")]
                found += [(string.lineno, name) for name in names]
        return sorted((line, name) for line, name in found if name in self.private)

    @cached_property
    def patches(self) -> list[int]:
        """The lines that replace something in a module or a class of the package."""
        lines = []
        for node in self.nodes:
            if isinstance(node, ast.Call) and node.args and _last_name(node.func) in _PATCHING:
                target = node.args[0]
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                target = node.value
            else:
                continue
            while isinstance(target, ast.Attribute):
                target = target.value
            if isinstance(target, ast.Call) and _last_name(target.func) == "import_module" and target.args:
                target = target.args[0]
            if (isinstance(target, ast.Name) and target.id in self._imported_names) or (
                isinstance(target, ast.Constant) and str(target.value).startswith("rtvi_sync.")
            ):
                lines.append(node.lineno)
        return lines

    def tied(self) -> list[str]:
        """Return the test functions that use a private name or a patch, by themselves or by a function of the file."""
        lines = {line for line, _ in self.private_uses} | set(self.patches)
        if not lines:
            return []
        functions = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        direct = {
            name for name, node in functions.items() if lines & set(range(node.lineno, (node.end_lineno or 0) + 1))
        }
        uses = {
            name: {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            | {argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)}
            for name, node in functions.items()
        }
        while more := {name for name in functions if name not in direct and uses[name] & direct}:
            direct |= more
        return sorted(name for name in direct if name.startswith("test"))


def _last_name(function: ast.expr) -> str:
    """Return the name by which a function is called, without the object before the last dot."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@cache
def private_names(root: Path = ROOT) -> frozenset[str]:
    """Return the private names that the package gives to functions, classes, attributes and constants."""
    found: set[str] = set()
    for path in (root / "rtvi_sync").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return frozenset(name for name in found if name.startswith("_") and not name.endswith("_") and "__" not in name)


def modules_of_tests(root: Path = ROOT, apart: str = "") -> dict[str, TestModule]:
    """Return the modules of `tests`, by name: all but the separate folders, or the modules of one of these."""
    private = private_names(root)
    modules = {}
    for path in sorted((root / "tests").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[1] == apart if apart else parts[1] not in APART:
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
    """Return one line for each private name that a test uses, for each patch of the package in a test of behaviour, and
    for each module that such a test imports and that is not public."""
    modules, package, lines = modules_of_tests(root), package_modules(root), []
    for module in modules.values():
        path = module.path.relative_to(root).as_posix()
        lines += [f"{path}:{line}: the private name {name}" for line, name in module.private_uses]
        if not module.is_marked:
            lines += [f"{path}:{line}: a test of behaviour patches the package" for line in module.patches]
        if module.functions() and not module.is_marked:
            for name, importer in inner_imports(module, modules, package).items():
                by = "" if importer == module.name else f" (by {importer})"
                lines.append(f"{path}: a test of behaviour imports {name}{by}")
    return lines


def counts(root: Path = ROOT) -> list[str]:
    """Return the counts of each kind, and of each folder apart, a line each."""
    lines = []
    modules = modules_of_tests(root).values()
    for kind in KINDS:
        of_kind = [module for module in modules if (kind == "inside") == module.is_marked]
        figures = {
            "modules": len(of_kind),
            "functions": sum(len(module.functions()) for module in of_kind),
            "tied to insides": sum(len(module.tied()) for module in of_kind),
            "private uses": sum(len(module.private_uses) for module in of_kind),
            "patches of the package": sum(len(module.patches) for module in of_kind),
            "lines": sum(module.text.count("\n") for module in of_kind),
        }
        lines.append(f"{kind}: " + ", ".join(f"{count} {what}" for what, count in figures.items()))
    for folder in APART:
        of_folder = modules_of_tests(root, folder).values()
        uses = sum(len(module.private_uses) for module in of_folder)
        lines.append(f"{folder}: {len(of_folder)} modules, {uses} private uses")
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
