"""Checks, in tests, of the array shapes that functions of evarl declare.

`jaxtyping.install_import_hook` checks every function of a module, and the constructor of every dataclass. That is too slow
for functions that are called millions of times, and wrong for pytrees, which JAX also builds with leaves that are batched
or are no arrays. So this hook decorates only functions whose own annotations name a shape, and checks only these annotations;
mypy checks the others. Where what has a declared shape is numbers and arrays, each combination of their kinds (shapes and
dtypes) is checked once for all calls: whether it agrees with the annotations depends on nothing else.
"""

import ast
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, NoneType
from typing import Any, get_args

import numpy as np
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, jaxtyped

from benchmarks.house import declares_shapes

TYPED = beartype(conf=BeartypeConf(is_pep484_tower=True))

PLAIN = {float, bool, str, NoneType, FunctionType}
"""Types that are the same to every annotation, whatever the value."""

FOUND: dict[CodeType, "_Found"] = {}
"""By code, because a function inside another is a new one whenever that is called."""


def checked(function: Callable) -> Callable:
    """The function with the shapes that it declares checked at every call, but for kinds that were found right before."""
    code = function.__code__
    if code not in FOUND:
        hints = function.__annotations__.items()
        FOUND[code] = _Found({name for name, hint in hints if not (isinstance(hint, str) or _names_shape(hint))})
    found = FOUND[code]
    always = cache(lambda: jaxtyped(function, typechecker=_shapes_only))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = found.kinds(zip(code.co_varnames, args, strict=False)), found.kinds(kwargs.items())
        if given not in found.right:
            result = always()(*args, **kwargs)
        else:
            result = function(*args, **kwargs)
            if found.kind_of(result) in found.right[given]:
                return result
            # The same checks on a function that has this result, so that nothing is done twice.
            jaxtyped(wraps(function)(lambda *args, **kwargs: result), typechecker=_shapes_only)(*args, **kwargs)
        if None not in given and (kind := found.kind_of(result)) is not None and len(args) <= code.co_argcount:
            found.right.setdefault(given, set()).add(kind)
        return result

    return call


@dataclass
class _Found:
    """What is known of a function: parameters that name no shape, and kinds of arguments with kinds of results that are right."""

    unshaped: set[str]
    right: dict[Hashable, set[Hashable]] = field(default_factory=dict)

    def kind_of(self, result: Any) -> Hashable:
        return "any" if "return" in self.unshaped else _kind(result)

    def kinds(self, arguments: Iterable[tuple[str, Any]]) -> Hashable:
        found = []
        for name, value in arguments:
            kind = _kind(value)
            if kind is None and name not in self.unshaped:
                return None
            found.append((name, kind))
        return tuple(found)


def _kind(value: Any) -> Hashable:
    """All of a value that can matter to whether it has a declared shape; None where that is not known."""
    of = type(value)
    if of is np.ndarray:
        return value.shape, value.dtype
    if hasattr(value, "aval") and hasattr(value, "dtype"):  # JAX's arrays, and what stands for them while it traces
        return "JAX", value.shape, value.dtype
    if of is int:
        return of, value  # a size may be named by an argument: Float[np.ndarray, " {count}"]
    if of is tuple:
        kinds = tuple(map(_kind, value))
        return None if None in kinds else kinds
    return of if of in PLAIN or isinstance(value, np.generic) else None


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
