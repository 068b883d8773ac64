"""Checks, in tests, of the array shapes that functions of evarl declare.

`jaxtyping.install_import_hook` checks every function of a module, and the constructor of every dataclass. That is too slow
for functions that are called millions of times, and wrong for pytrees, which JAX also builds with leaves that are batched
or are no arrays. So this hook decorates only functions whose own annotations name a shape, and checks only these annotations;
mypy checks the others.
"""

import ast
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, jaxtyped

from benchmarks.house import declares_shapes

TYPED = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checked(function: Callable) -> Callable:
    """The function with the shapes that it declares checked at every call."""
    return jaxtyped(function, typechecker=_shapes_only)


def _shapes_only(function: Callable) -> Callable:
    """jaxtyping hands over copies of the function, one with the annotation of its result and one without."""
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if _names_shape(hint)}
    return TYPED(function)


def _names_shape(hint: Any) -> bool:
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(map(_names_shape, get_args(hint)))


class _Decorated(ast.NodeTransformer):
    """Puts `checked` nearest to every function that declares a shape, below `jax.jit`, `property` and the like."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        if declares_shapes(node):
            call = ast.parse("__import__('tests.shapes').shapes.checked", mode="eval").body
            node.decorator_list.append(ast.copy_location(call, node))
        return node


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """From the source, so that compiled files in `__pycache__` stay those of the undecorated module."""
        tree = _Decorated().visit(ast.parse(self.get_data(self.path)))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = tuple(f"{package}." for package in packages)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The module, found as always but loaded with checks."""
        spec = PathFinder.find_spec(name, path, target) if f"{name}.".startswith(self.packages) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def check_shapes_in(packages: Sequence[str]) -> None:
    """Check the shapes of functions in packages that are imported from now on."""
    early = [name for name in sys.modules if f"{name}.".startswith(tuple(f"{package}." for package in packages))]
    assert not early, f"imported before its shapes could be checked: {early}"
    sys.meta_path.insert(0, _Finder(packages))
