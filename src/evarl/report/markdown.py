"""Markdown: tables, and pages in which marked places are filled by programs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from evarl.storage.files import read_regular, write_bytes
from evarl.storage.plain import LONGEST


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[bool]) -> str:
    """A Markdown table of cells that are Markdown themselves; columns of numbers are aligned to the right.

    >>> print(markdown_table(["name", "value"], [["a", "1"]], [False, True]))
    | name | value |
    | --- | ---: |
    | a | 1 |
    """
    rule = ["---:" if number else "---" for number in numeric]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows))


def escaped(text: str) -> str:
    r"""Text as one line of Markdown in which nothing is taken for markup.

    >>> escaped("a | *b*")
    'a \\| \\*b\\*'
    """
    return re.sub(r"([\\|<*`])", r"\\\1", " ".join(text.split("\n")).strip())


def fill_page(path: Path, contents: Mapping[str, str]) -> None:
    """Replace the text between `<!-- NAME -->` and `<!-- end NAME -->` of a Markdown page, for each name in `contents`."""
    page = read_regular(path, LONGEST).decode(errors="surrogateescape")
    for name, content in contents.items():
        begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{content}\n{end}{after}"
    write_bytes(path, page.encode(errors="surrogateescape"))
