"""HTML pages from Jinja2 templates, which escape whatever they are given."""

import functools
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

FEW = 8
"""Up to this many settings are shown unfolded."""


def render(template: str, **values: Any) -> str:
    """The page that a template of this folder makes of some values; all text in them is escaped.

    Style and script go inside, so that a page needs no network and no other file.
    """
    folder = files("evarl.report")
    style, script = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return _environment().get_template(template).render(style=style, script=script, **values)


def data_address(kind: str, content: bytes) -> str:
    """Content as a data address, for which nothing is fetched."""
    return f"data:{kind};base64,{b64encode(content).decode()}"


def nested(value: Any) -> Mapping[str, Any] | None:
    """A table of settings, or a list that contains some, by number; None for anything else and for empty ones."""
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return {str(number): item for number, item in enumerate(value, 1)}
    return value if isinstance(value, Mapping) and value else None


def count(settings: Mapping[str, Any]) -> int:
    """Number of settings at any depth."""
    return sum(1 if (inner := nested(value)) is None else count(inner) for value in settings.values())


def setting(value: Any) -> str:
    """A setting as it would be typed, not rounded."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(setting, value)) or "none"
    return "none" if value is None or value in ({}, "") else str(value)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("evarl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"FEW": FEW, "nested": nested, "count": count, "data_address": data_address}
    environment.filters["setting"] = setting
    return environment
