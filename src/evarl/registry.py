"""Registries: objects by name, which users can add to."""

import importlib
from operator import attrgetter
from typing import Generic, TypeVar, cast

from evarl.errors import InputError, unknown_name
from evarl.settings import conforming

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects by name. Those given as "module:attribute" are imported when they are first used.

    >>> numbers = Registry("number", {"pi": "math:pi"})
    >>> numbers.register("two", 2.0)
    >>> numbers.get("pi") > numbers.get("two"), numbers.names()
    (True, ('pi', 'two'))
    """

    def __init__(self, what: str, entries: dict[str, "str | T"]):
        self.what = what
        self._entries = dict(entries)
        self._builtin = frozenset(entries)

    def register(self, name: str, entry: T) -> None:
        """Add an object under a name that is free."""
        conforming("name", name, str)
        if name in self._entries and self._entries[name] is not entry:
            raise InputError(f"{self.what}: '{name}' is taken; register it under another name")
        self._entries[name] = entry

    def check(self, setting: str, name: str) -> None:
        """Refuse an unknown name; the error suggests the nearest known one."""
        if name not in self._entries:
            raise unknown_name(setting, name, self._entries)

    def get(self, name: str) -> T:
        """The object called `name`."""
        self.check(self.what, name)
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = cast(T, attrgetter(attribute)(importlib.import_module(module)))
        return entry

    def builtin(self, name: str) -> bool:
        """Whether a name was there before any was registered."""
        return name in self._builtin

    def names(self) -> tuple[str, ...]:
        """All names, in the order in which they were registered."""
        return tuple(self._entries)
