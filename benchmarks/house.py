"""`python -m benchmarks.house [SRC]`: figures about the structure of the package in the source tree SRC.

Every figure is counted in the source by `ast`, but for the visits to folders, which are counted while one evaluation-aware
update is traced. SRC is any tree that holds `evarl`, so that two versions can be compared:

    python -m benchmarks.house            # this one
    python -m benchmarks.house OTHER/src --json

`tests/test_structure.py` tests what must hold with the functions of this file.
"""

import ast
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import tyro

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src"

LEVELS = (
    ("errors", "keys", "ranges", "registry", "settings", "storage", "stopping"),
    ("sizes",),
    ("worlds",),
    ("agents",),
    ("policies",),
    ("simulation",),
    ("assessment",),
    ("evaluators",),
    ("learning",),
    ("stats",),
    ("bounds",),
    ("truth",),
    ("ope",),
    ("theory",),
    ("runs",),
    ("callbacks",),
    ("evaluation",),
    ("report",),
    ("certificates",),
    ("studies",),
    ("cli",),
    ("evarl", "__main__"),
)
"""Folders and single modules in the order of imports: each imports from its own level and those before it. `evarl` is the
package's own `__init__`, which exports from all of them."""

HOST_OR_COMPILED = re.compile(r"(Host|Compiled)\w*|World|Assessment")
"""Classes that are told apart where code asks whether a world runs on the host or is compiled."""

SHAPES = re.compile(r"(Float|Int|UInt|Bool|Num|Real|Inexact|Complex|Shaped)\d*")
"""Annotations of jaxtyping."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One module: its dotted name, its path relative to the source tree, its syntax tree and that of its stub file."""

    name: str
    path: str
    tree: ast.Module
    stub: ast.Module | None = None

    @property
    def folder(self) -> str:
        """The folder of `evarl` that it belongs to; a module beside the folders is its own, `evarl/__init__` is `evarl`."""
        return self.name.split(".")[1] if "." in self.name else "evarl"


@dataclass(frozen=True)
class Import:
    """An import of one of evarl's modules by another, wherever it stands."""

    importer: Module
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer.path}:{self.line} imports {self.imported}"


def modules(source: Path = SOURCE) -> dict[str, Module]:
    """All modules of `evarl` by dotted name; a package's `__init__` has the name of the package."""
    found = {}
    for path in sorted((source / "evarl").rglob("*.py")):
        relative = path.relative_to(source)
        parts = relative.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        stub = path.with_suffix(".pyi")
        types = ast.parse(stub.read_text()) if stub.exists() else None
        found[name] = Module(name, str(relative), ast.parse(path.read_text()), types)
    return found


def imports(found: dict[str, Module]) -> list[Import]:
    """Imports between the modules: those in functions, under TYPE_CHECKING, in stubs and by `import_module("…")` included."""
    return [
        Import(module, name, getattr(node, "lineno", 0))
        for module in found.values()
        for tree in filter(None, (module.tree, module.stub))
        for node in ast.walk(tree)
        for name in sorted(set(_imported(node, module, found)) - {module.name})
    ]


def _imported(node: ast.AST, module: Module, found: dict[str, Module]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in found)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module.name if module.path.endswith("__init__.py") else module.name.rpartition(".")[0]
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parents, *filter(None, [node.module])])
        if base in found:
            yield from (name if (name := f"{base}.{alias.name}") in found else base for alias in node.names)
    elif isinstance(node, ast.Call) and _last_name(node.func) == "import_module":
        names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        yield from (name for name in names if name in found)


def stale_imports(files: Iterable[Path], found: dict[str, Module]) -> list[str]:
    """Imports `from evarl… import name` of a module or name that does not exist; needed where nothing runs the file."""
    stale, defined = [], cache(lambda name: _defined_names(found[name]) if name in found else set())
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.level or (node.module or "").split(".")[0] != "evarl":
                continue
            names = defined(node.module or "")
            stale += [
                f"{path}:{node.lineno} imports {node.module}.{alias.name}"
                for alias in node.names
                if alias.name not in names and f"{node.module}.{alias.name}" not in found
            ]
    return stale


def _defined_names(module: Module) -> set[str]:
    """Names that a module or its stub defines, at any depth."""
    names: set[str] = set()
    for node in (part for tree in filter(None, (module.tree, module.stub)) for part in ast.walk(tree)):
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return names


def upward_imports(found: dict[str, Module]) -> list[Import]:
    """Imports that go to a folder that comes later in LEVELS."""
    level = {folder: index for index, folders in enumerate(LEVELS) for folder in folders}
    return [
        each
        for each in imports(found)
        if level[each.importer.folder] < level[found[each.imported].folder] and each.importer.name != "evarl"
    ]


def import_cycles(found: dict[str, Module]) -> list[list[str]]:
    """A shortest circle of imports for each group of modules that import one another; the first module is also the last."""
    to: dict[str, set[str]] = {name: set() for name in found}
    for each in imports(found):
        to[each.importer.name].add(each.imported)
    circles = sorted(filter(None, (_way(name, name, to) for name in sorted(to))), key=len)
    kept: list[list[str]] = []
    for circle in circles:
        grouped = (_way(circle[0], other[0], to) and _way(other[0], circle[0], to) for other in kept)
        if not any(grouped):
            kept.append(circle)
    return kept


def _way(start: str, end: str, to: dict[str, set[str]]) -> list[str]:
    """A shortest way from one module over imports, at least one, to another or back to itself; empty if there is none."""
    ways, seen = [[start]], set()
    for way in ways:
        for name in sorted(to[way[-1]] - seen):
            if name == end:
                return [*way, name]
            seen.add(name)
            ways.append([*way, name])
    return []


@dataclass(frozen=True)
class Defined:
    """A function or method, nested ones included."""

    module: Module
    name: str
    node: Function
    is_method: bool

    @property
    def lines(self) -> int:
        """From `def` to the last line."""
        return (self.node.end_lineno or self.node.lineno) - self.node.lineno + 1

    @property
    def parameters(self) -> int:
        """All that can be passed, without `self` and `cls`; `*args` and `**kwargs` count as one each."""
        given = self.node.args
        named = [*given.posonlyargs, *given.args]
        bound = self.is_method and bool(named) and named[0].arg in ("self", "cls")
        return len(named) - bound + len(given.kwonlyargs) + (given.vararg is not None) + (given.kwarg is not None)

    @property
    def place(self) -> str:
        """Such as `evarl/runs/train.py:Trainer.advance`."""
        return f"{self.module.path}:{self.name}"


def declares_shapes(function: Function) -> bool:
    """Whether an annotation of a function's signature is one of jaxtyping's."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    annotations = [function.returns, *(argument.annotation for argument in arguments if argument is not None)]
    parts = [part for annotation in annotations if annotation is not None for part in ast.walk(annotation)]
    return any(isinstance(part, ast.Subscript) and SHAPES.fullmatch(_last_name(part.value)) for part in parts)


def functions(found: dict[str, Module]) -> list[Defined]:
    """All functions and methods of the modules."""

    def inside(module: Module, node: ast.AST, prefix: str, is_class: bool) -> Iterator[Defined]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield Defined(module, prefix + child.name, child, is_class)
            if isinstance(child, Function | ast.ClassDef):
                yield from inside(module, child, f"{prefix}{child.name}.", isinstance(child, ast.ClassDef))
            else:
                yield from inside(module, child, prefix, is_class)

    return [each for module in found.values() for each in inside(module, module.tree, "", False)]


def host_tests(found: dict[str, Module]) -> list[str]:
    """Where code asks whether something runs on the host or compiled: `isinstance` or `case` with such a class."""
    places = []
    for module in found.values():
        for node in ast.walk(module.tree):
            asked: ast.AST | None = None
            if isinstance(node, ast.Call) and _last_name(node.func) == "isinstance" and len(node.args) == 2:
                asked = node.args[1]
            elif isinstance(node, ast.MatchClass):
                asked = node.cls
            names = [] if asked is None else [_last_name(part) for part in ast.walk(asked)]
            if any(HOST_OR_COMPILED.fullmatch(name) for name in names):
                places.append(f"{module.path}:{getattr(node, 'lineno', 0)}")
    return places


def behaviour_files(found: dict[str, Module]) -> list[str]:
    """Files that declare an array whose last axis is `k`: one number for each start state of the assessment.

    These know that the behaviour Ξ consists of returns: another kind of Ξ may have to change each of them.
    """
    return [
        module.path
        for module in found.values()
        if any(
            isinstance(node, ast.Subscript)
            and SHAPES.fullmatch(_last_name(node.value))
            and any(isinstance(part, ast.Constant) and _ends_with_k(part.value) for part in ast.walk(node.slice))
            for node in ast.walk(module.tree)
        )
    ]


def _ends_with_k(shape: Any) -> bool:
    return isinstance(shape, str) and shape.split()[-1:] == ["k"]


def _last_name(node: ast.AST) -> str:
    """The name that an expression ends with: `b` for `a.b`, `a` for `a`; nothing for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def lines(source: Path) -> dict[str, int]:
    """Lines of all files, stubs included, and of these the ones that are neither blank nor comments (docstrings count)."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    total = code = 0
    for path in (source / "evarl").rglob("*.py*"):
        if path.suffix not in (".py", ".pyi"):
            continue
        total += len(path.read_text().splitlines())
        with path.open("rb") as file:
            tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in skipped]
        code += len({line for token in tokens[1:] for line in range(token.start[0], token.end[0] + 1)})
    return {"all": total, "code": code}


def checked_shapes(found: dict[str, Module], source: Path) -> dict[str, Any]:
    """Functions that declare array shapes, and how many of them the tests check (CHECKED in tests/conftest.py beside SRC)."""
    declaring = [each for each in functions(found) if declares_shapes(each.node)]
    conftest = source.parent / "tests" / "conftest.py"
    names = tuple(f"{name}." for name in (_checked_names(conftest) if conftest.exists() else []))
    checked = [each for each in declaring if f"{each.module.name}.".startswith(names)]
    unchecked = sorted({each.module.path for each in declaring} - {each.module.path for each in checked})
    return {"declared": len(declaring), "checked": len(checked), "unchecked files": unchecked}


def _checked_names(conftest: Path) -> list[str]:
    """Modules and packages that CHECKED lists, as `evarl.…` or without that."""
    for node in ast.parse(conftest.read_text()).body:
        if isinstance(node, ast.Assign) and [_last_name(target) for target in node.targets] == ["CHECKED"]:
            strings = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            names = [name for name in strings if isinstance(name, str) and name != "evarl."]
            return [name if name.split(".")[0] == "evarl" else f"evarl.{name}" for name in names]
    return []


def traced_calls(source: Path) -> list[tuple[str, str]]:
    """Calls `(file, function)` of functions of SRC's evarl while one evaluation-aware update is traced, in order."""
    environment = os.environ | {"PYTHONPATH": str(source), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-P", str(HERE / "house_trace.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the update could not be traced: {done.stderr.strip()[-500:]}")
    return [(file, function) for file, function in json.loads(done.stdout.splitlines()[-1])]


def folder_visits(calls: Sequence[tuple[str, str]]) -> int:
    """Stretches of consecutive calls that stay within one folder; one more than the changes of folder.

    Every call of a Python function counts, with lambdas and comprehensions; returns do not, nor do modules beside the folders,
    which are to them what a library is.

    >>> folder_visits([("learning/a.py", "f"), ("learning/b.py", "g"), ("worlds/a.py", "f"), ("learning/a.py", "h")])
    3
    """
    folders = [file.split(os.sep)[0] for file, _ in calls if os.sep in file]
    return sum(folder != before for folder, before in zip(folders, [None, *folders], strict=False))


def entries(calls: Sequence[tuple[str, str]], most: int = 8) -> dict[str, int]:
    """The functions whose calls most often begin a visit to a folder, and how often each does."""
    pairs = itertools.pairwise(calls)
    begun = Counter(f"{b[0]}:{b[1]}" for a, b in pairs if a[0].split(os.sep)[0] != b[0].split(os.sep)[0])
    return dict(begun.most_common(most))


def duplicate_pairs(source: Path) -> int | None:
    """Pairs of places that share six lines or more, by the command `duplicates`; None where there is no such command."""
    command = shutil.which("duplicates")
    if command is None:
        return None
    done = subprocess.run([command, "--repo", str(source)], capture_output=True, text=True, check=False)
    first = re.match(r"(\d+) pairs?", done.stdout)
    return int(first[1]) if first else 0


def measure(source: Path, trace: bool = True) -> dict[str, Any]:
    """All figures, by name."""
    found = modules(source)
    defined = functions(found)
    folders = {module.folder for module in found.values()}
    ordered = folders <= {folder for level in LEVELS for folder in level}
    tests = host_tests(found)
    wide = sorted((each for each in defined if each.parameters > 6), key=lambda each: -each.parameters)
    longest = sorted(defined, key=lambda each: -each.lines)
    calls = traced_calls(source) if trace else []
    return {
        "lines": lines(source),
        "files": len(found),
        "functions": len(defined),
        "folder visits in one traced update": folder_visits(calls) if trace else None,
        "folder visits, each function once": folder_visits(list(dict.fromkeys(calls))) if trace else None,
        "functions that change the folder most often": entries(calls),
        "host-or-compiled tests": {"tests": len(tests), "files": len({place.split(":")[0] for place in tests})},
        "functions over 7 parameters": {each.place: each.parameters for each in wide if each.parameters > 7},
        "functions over 6 parameters": {each.place: each.parameters for each in wide},
        "functions over 60 lines": sum(each.lines > 60 for each in defined),
        "longest functions": {each.place: each.lines for each in longest[:5]},
        "imports against the order of folders": len(upward_imports(found)) if ordered else None,
        "import cycles": import_cycles(found),
        "duplicate pairs": duplicate_pairs(source),
        "files that know that Ξ consists of returns": behaviour_files(found),
        "functions with shapes": checked_shapes(found, source),
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as text, with the lists that belong to them below."""
    counted, shapes = figures["lines"], figures["functions with shapes"]
    tests = figures["host-or-compiled tests"]
    unknown = lambda value: "not measured" if value is None else value  # noqa: E731
    rows = [
        ("lines (neither blank nor comment)", f"{counted['all']} ({counted['code']})"),
        ("files, functions", f"{figures['files']}, {figures['functions']}"),
        ("visits to folders in one traced update", unknown(figures["folder visits in one traced update"])),
        ("the same, each function counted once", unknown(figures["folder visits, each function once"])),
        ("host-or-compiled tests", f"{tests['tests']} in {tests['files']} files"),
        ("functions over 7 parameters", len(figures["functions over 7 parameters"])),
        ("functions over 6 parameters", len(figures["functions over 6 parameters"])),
        ("functions over 60 lines", figures["functions over 60 lines"]),
        ("longest function", max(figures["longest functions"].values())),
        ("imports against the order of folders", unknown(figures["imports against the order of folders"])),
        ("import cycles between modules", len(figures["import cycles"])),
        ("duplicate pairs", unknown(figures["duplicate pairs"])),
        ("files that know that Ξ consists of returns", len(figures["files that know that Ξ consists of returns"])),
        ("functions with shapes, of these checked", f"{shapes['declared']}, {shapes['checked']}"),
    ]
    width = max(len(name) for name, _ in rows)
    text = [f"{name:<{width}}  {value}" for name, value in rows]
    for title in ("functions that change the folder most often", "functions over 6 parameters", "longest functions"):
        text += ["", f"{title}:", *(f"  {count:>3}  {place}" for place, count in figures[title].items())]
    lists = {
        "import cycles": [" → ".join(circle) for circle in figures["import cycles"]],
        "files that know that Ξ consists of returns": figures["files that know that Ξ consists of returns"],
        "files with shapes that are not checked": shapes["unchecked files"],
    }
    for title, items in lists.items():
        text += ["", f"{title}:", *(f"  {item}" for item in items)] if items else []
    return "\n".join(text)


def main(
    source: Annotated[Path, tyro.conf.Positional] = SOURCE,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
    trace: bool = True,
) -> None:
    """Print figures about the structure of the package.

    Args:
        source: folder that holds `evarl`.
        json_: print one JSON object instead of a table.
        trace: trace an update, which takes some seconds, and count visits to folders.
    """
    figures = measure(source.resolve(), trace)
    print(json.dumps(figures, indent=1, ensure_ascii=False) if json_ else table(figures))


if __name__ == "__main__":
    tyro.cli(main)
