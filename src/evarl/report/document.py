"""Pages of HTML that need nothing else: no network, no files beside them, and to be read, no script."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from typing import Any

FEW = 8
"""Up to so many settings are shown unfolded."""

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'"
ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='3.5' fill='#1d4f91'/>"
    "<path d='M8 3v10M4 8h8' stroke='#fff' stroke-width='1.2' opacity='.55'/><circle cx='10' cy='8' r='2.2' fill='#fff'/></svg>"
)


def document(title: str, body: str) -> str:
    """Style and script go inside, so that the file can be mailed."""
    folder = files("evarl.report")
    style, script = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        f'<link rel="icon" href="{data_address("image/svg+xml", ICON.encode())}">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n{body}\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def settings_list(settings: Mapping[str, Any]) -> str:
    """A table of settings; one inside another folds, and is folded if it is long."""
    plain, nested = [], []
    for name, value in settings.items():
        inner = _nested(value)
        if inner is None:
            plain.append(f"<dt>{escape(str(name))}</dt><dd>{_setting(value, code=name == 'command')}</dd>")
            continue
        count = _count(inner)
        nested.append(
            f"<details{' open' if count <= FEW else ''}><summary>{escape(str(name))} "
            f'<span class="quiet">{count} {"entry" if count == 1 else "entries"}</span></summary>{settings_list(inner)}</details>'
        )
    return (f"<dl>{''.join(plain)}</dl>" if plain else "") + "".join(nested)


def _nested(value: Any) -> Mapping[str, Any] | None:
    """A table of settings, or a list in which there are some, by number; None for anything else and for empty ones."""
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return {str(number): item for number, item in enumerate(value, 1)}
    return value if isinstance(value, Mapping) and value else None


def _count(settings: Mapping[str, Any]) -> int:
    """How many settings there are, at any depth."""
    return sum(1 if (inner := _nested(value)) is None else _count(inner) for value in settings.values())


def _setting(value: Any, *, code: bool = False) -> str:
    """A setting as it would be typed; unlike in a table nothing is rounded and signs are ASCII."""
    if isinstance(value, str) and (code or "\n" in value):
        return f"<pre>{escape(value)}</pre>"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value)) or "none"
    return "none" if value is None or value in ({}, "") else escape(str(value))


def paragraphs(words: str) -> str:
    """Text in which an empty line parts paragraphs."""
    return "".join(f"<p>{escape(part.strip())}</p>" for part in words.split("\n\n") if part.strip())


def listing(kind: str, items: Iterable[str]) -> str:
    """A list of a class; nothing for no items."""
    inside = "".join(items)
    return f'<ul class="{kind}">{inside}</ul>' if inside else ""


def data_address(kind: str, content: bytes) -> str:
    """Content as an address, for which nothing is fetched."""
    return f"data:{kind};base64,{b64encode(content).decode()}"
