"""The structure of the package: the direction of imports, the size of functions, and what `import evarl` offers.

`python -m benchmarks.house` prints the same figures and more.
"""

import ast
import subprocess
import sys

import pytest

from benchmarks.house import (
    LEVELS,
    SOURCE,
    Module,
    folder_visits,
    functions,
    import_cycles,
    measure,
    modules,
    stale_imports,
    table,
    upward_imports,
)

MODULES = modules()
FUNCTIONS = functions(MODULES)
LINES = 60
PARAMETERS = 7
OPTIONS = "the options of a command"
MANY_PARAMETERS = {
    "evarl/runs/train.py:train": OPTIONS,
    "evarl/evaluation/evaluate.py:evaluate": OPTIONS,
    "evarl/evaluation/assess.py:assess": OPTIONS,
    "evarl/report/video.py:video": OPTIONS,
}
"""Functions that may have more parameters than the others, and why."""


def listed(items: list) -> str:
    """One item a line."""
    return "\n".join(["", *map(str, items)])


def test_every_folder_has_its_place_in_the_order_of_imports():
    known = {folder for level in LEVELS for folder in level}
    unknown = sorted({module.folder for module in MODULES.values()} - known)
    assert not unknown, f"add these to LEVELS in benchmarks/house.py: {unknown}"


def test_imports_go_to_the_same_folder_or_to_earlier_ones():
    upward = [str(each) for each in upward_imports(MODULES)]
    assert not upward, f"{len(upward)} imports go against the order of folders:{listed(upward)}"


def test_modules_do_not_import_one_another_in_circles():
    circles = [" → ".join(circle) for circle in import_cycles(MODULES)]
    assert not circles, f"{len(circles)} groups of modules import one another:{listed(circles)}"


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "tools", "examples"])
def test_imported_names_exist(folder):
    stale = stale_imports(sorted((SOURCE.parent / folder).rglob("*.py")), MODULES)
    assert not stale, f"{len(stale)} imports of what does not exist:{listed(stale)}"


@pytest.mark.parametrize("folder", ["stats", "bounds"])
def test_statistics_do_not_import_jax(folder):
    program = f"import sys, pkgutil, importlib, evarl.{folder} as folder\n" + (
        "for found in pkgutil.walk_packages(folder.__path__, folder.__name__ + '.'): importlib.import_module(found.name)\n"
        "sys.exit('JAX was imported' if 'jax' in sys.modules else 0)"
    )
    run_python(program)


def test_functions_are_short():
    long = sorted((each for each in FUNCTIONS if each.lines > LINES), key=lambda each: -each.lines)
    lines = [f"{each.lines} lines: {each.place}" for each in long]
    assert not lines, f"{len(long)} functions are longer than {LINES} lines:{listed(lines)}"


def test_functions_have_few_parameters():
    many = [each for each in FUNCTIONS if each.parameters > PARAMETERS and each.place not in MANY_PARAMETERS]
    lines = [f"{each.parameters} parameters: {each.place}" for each in many]
    assert not lines, f"{len(many)} functions have more than {PARAMETERS} parameters:{listed(lines)}"


def test_exceptions_are_needed():
    needed = {each.place for each in FUNCTIONS if each.parameters > PARAMETERS}
    assert not MANY_PARAMETERS.keys() - needed, "MANY_PARAMETERS names functions that have few parameters or are gone"


@pytest.mark.parametrize("folder", ["ope", "bounds", "stats"])
def test_libraries_are_attributes_of_the_package(folder):
    run_python(f"import evarl; assert evarl.{folder}.__name__ == 'evarl.{folder}'; assert '{folder}' in dir(evarl)")


def test_bounds_and_statistics_come_without_jax():
    run_python(
        "import sys, evarl; evarl.bounds, evarl.stats; sys.exit('JAX was imported' if 'jax' in sys.modules else 0)"
    )


def run_python(program: str) -> None:
    """Run a program in a fresh interpreter; it must end well."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_stretch_of_calls_in_one_folder_is_one_visit():
    assert folder_visits([]) == 0
    assert folder_visits([("learning/a.py", "f"), ("learning/b.py", "g")]) == 1


def test_circles_of_imports_are_found():
    texts = {
        "a": "import evarl.b",
        "b": "def f():\n    from evarl import c",
        "c": "from .a import x",
        "d": "import evarl.a",
    }
    found = {f"evarl.{name}": Module(f"evarl.{name}", f"evarl/{name}.py", ast.parse(texts[name])) for name in texts}
    found["evarl"] = Module("evarl", "evarl/__init__.py", ast.parse(""))
    assert import_cycles(found) == [["evarl.a", "evarl.b", "evarl.c", "evarl.a"]]


@pytest.mark.slow
def test_the_figures_can_be_printed():
    text = table(measure(SOURCE, trace=False))
    assert f"files, functions {len(MODULES)}, {len(FUNCTIONS)}" in " ".join(text.split())
