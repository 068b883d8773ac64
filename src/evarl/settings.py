"""Settings and arguments as their declared types: what is equal is converted, anything else refused in one line. No JAX."""

import collections.abc
import dataclasses
import functools
import inspect
import numbers
import types
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from evarl.errors import InputError, unknown_name
from evarl.ranges import flag

P = ParamSpec("P")
T = TypeVar("T")
_SIMPLE: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    Path: "a path",
    type(None): "None",
}
_PLURAL = {int: "whole numbers", float: "numbers", str: "texts"}
_FUNCTIONS = collections.abc.Callable


class _Mismatch(Exception):  # noqa: N818
    """A value is not of the declared type."""


def conforming(name: str, value: Any, hint: Any) -> Any:
    """The value as the declared type: a list as a tuple, a NumPy number as Python's; InputError if it is of another type.

    >>> conforming("hidden-sizes", [64, 64], tuple[int, ...])
    (64, 64)
    >>> conforming("updates", "many", int)
    Traceback (most recent call last):
    evarl.errors.InputError: updates: 'many' is not allowed; must be a whole number
    """
    try:
        return _converted(value, hint)
    except _Mismatch:
        raise InputError(f"{name}: {value!r:.60} is not allowed; must be {_described(hint)}{_hint(value)}") from None


def _hint(value: Any) -> str:
    """What helps where an environment was given in place of what makes it."""
    if (
        not isinstance(value, type)
        and callable(getattr(value, "reset", None))
        and callable(getattr(value, "step", None))
    ):
        return f"; this is an environment: pass the class, {type(value).__name__}, or a function that makes it"
    return ""


def check_fields(config: Any, prefix: str = "") -> None:
    """Replace the fields of a frozen dataclass by values of their declared types; for `__post_init__`."""
    kind: Any = type(config)
    for name, hint in _hints(kind).items():
        value = getattr(config, name)
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            raise InputError(
                f"{flag(prefix, name)}: {value!r:.60} is not allowed; must be {_described(hint)} here; `evarl.train` and "
                "`evarl.with_settings` take a dict of the fields to change"
            )
        converted = conforming(flag(prefix, name), value, hint)
        if converted is not value:
            object.__setattr__(config, name, converted)


def with_changes(config: T, changes: Mapping[str, Any], prefix: str = "") -> T:
    """A dataclass with some fields changed. Fields of fields are named "agent.algorithm", or given as a dict.

    An unknown field is an InputError that suggests the nearest one.
    """
    fields = {one.name for one in dataclasses.fields(config)}  # type: ignore[arg-type]
    for given, value in changes.items():
        name, _, inner = str(given).partition(".")
        present = getattr(config, name, None)
        if name not in fields:
            known = [f"{prefix}{one.name}" for one in dataclasses.fields(config)]  # type: ignore[arg-type]
            raise unknown_name("setting", f"{prefix}{name}", known)
        if inner and not dataclasses.is_dataclass(present):
            raise InputError(f"setting: unknown '{prefix}{given}'; {prefix}{name} has no fields")
        within = {inner: value} if inner else value
        if dataclasses.is_dataclass(present) and isinstance(within, Mapping):
            value = with_changes(present, within, f"{prefix}{name}.")
        config = dataclasses.replace(config, **{name: value})  # type: ignore[type-var]
    return config


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """The function with arguments of their declared types; others, and names that it does not have, are an InputError."""
    parameters = inspect.signature(function).parameters
    named = [name for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD]
    more = len(named) < len(parameters)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs:
            if name not in named and not more:
                raise unknown_name("argument", name, named)
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(f"{function.__name__}: {error}; its arguments are {', '.join(named)}") from None
        for name, value in bound.arguments.items():
            if name in named:
                bound.arguments[name] = conforming(flag("", name), value, parameters[name].annotation)
        return function(*bound.args, **bound.kwargs)

    return call


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return {one.name: get_type_hints(kind)[one.name] for one in dataclasses.fields(kind)}


def _converted(value: Any, hint: Any) -> Any:
    """The value as the type `hint`, or _Mismatch."""
    if hint is Any:
        return value
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _first(value, inner)
    if origin is Literal:
        return _checked_if(isinstance(value, str) and str(value) in inner, value)
    if origin is tuple:
        each = inner if Ellipsis not in inner else inner[:1] * (len(value) if isinstance(value, list | tuple) else 0)
        if not isinstance(value, list | tuple) or len(value) != len(each):
            raise _Mismatch
        return tuple(map(_converted, value, each))
    if origin is collections.abc.Sequence:
        _checked_if(hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping | Set), value)
        return [_converted(one, inner[0]) for one in value]
    if origin is collections.abc.Mapping or origin is dict:
        return _checked_if(isinstance(value, Mapping), value)
    if origin is _FUNCTIONS:
        return _checked_if(callable(value), value)
    return _number_or_object(value, hint)


def _number_or_object(value: Any, hint: Any) -> Any:
    if hint is bool:
        return bool(
            _checked_if(isinstance(value, bool) or type(value).__name__ == "bool", value)
        )  # NumPy's has this name
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        _checked_if(isinstance(value, kind) and not isinstance(value, bool), value)
        return value if type(value) in (int, float) else _plain(value, hint)
    if hint is Path:
        return Path(_checked_if(isinstance(value, str | Path), value))
    if hint is type(None):
        return _checked_if(value is None, value)
    if isinstance(hint, type) and get_origin(hint) is None:
        return _checked_if(isinstance(value, hint), value)
    return value  # what is declared by other packages


def _plain(value: Any, hint: type) -> int | float:
    """A number of NumPy, or of another package, as Python's; a whole number stays one."""
    return int(value) if isinstance(value, numbers.Integral) else hint(value)


def _first(value: Any, hints: tuple[Any, ...]) -> Any:
    """The value as the first type that it fits; text stays text where a path may be text."""
    if isinstance(value, str) and str in hints:
        return value
    for hint in hints:
        try:
            return _converted(value, hint)
        except _Mismatch:
            continue
    raise _Mismatch


def _checked_if(fits: bool, value: Any) -> Any:
    if not fits:
        raise _Mismatch
    return value


def _described(hint: Any) -> str:
    """A declared type in words.

    >>> _described(tuple[int, ...] | None)
    'a list of whole numbers or None'
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin in (Union, types.UnionType):
        inner = tuple(one for one in inner if not (one is Path and str in inner))
        words = ["a path" if one is str and Path in get_args(hint) else _described(one) for one in inner]
        return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    if origin is Literal:
        return f"{', '.join(inner[:-1])} or {inner[-1]}" if len(inner) > 1 else str(inner[0])
    if origin in (tuple, collections.abc.Sequence):
        count = "" if origin is not tuple or Ellipsis in inner else f"{len(inner)} "
        kind = "functions" if get_origin(inner[0]) is _FUNCTIONS else _PLURAL.get(inner[0], "values")
        return f"a list of {count}{kind}"
    if origin in (dict, collections.abc.Mapping):
        return "a dict"
    if origin is _FUNCTIONS:
        return "a function"
    name = getattr(hint, "__name__", str(hint))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
