"""Tables, numbers and progress on the terminal."""

import sys
from collections.abc import Sequence
from math import isfinite
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evarl.errors import plain_text

WIDE = 200
BLOCKS = "▁▂▃▄▅▆▇█"


class PlainTable(Table):
    """A table without a frame whose cells are printed literally: without markup and without control characters."""

    def __init__(self, *columns: Any, **settings: Any) -> None:
        style = {"box": None, "title_justify": "left", "title_style": "bold"}
        super().__init__(*columns, **(style | settings))

    def add_row(self, *cells: Any, **settings: Any) -> None:
        """Add a row of texts."""
        super().add_row(*(Text(plain_text(cell)) for cell in cells), **settings)


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal; elsewhere each row is one line."""
    terminal = Console()
    (terminal if terminal.is_terminal else Console(width=WIDE)).print(table)


def number(value: float | None, form: str = ".3f", error: float | None = None) -> str:
    """A number with its standard error, and a dash where it is not known.

    >>> number(1.5), number(0.25, ".0%"), number(1.5, error=0.1), number(None)
    ('1.500', '25%', '1.500 ± 0.100', '—')
    """
    return "—" if value is None else f"{value:{form}}" + ("" if error is None else f" ± {error:{form}}")


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """A curve in one line of block characters; parts of it without values are blanks.

    >>> sparkline([0.0, 1.0, 2.0, None, 7.0], width=5)
    '▁▂▃ █'
    """
    count, columns = len(values), min(width, len(values))
    parts = [values[i * count // columns : (i + 1) * count // columns] for i in range(columns)]
    known = [[one for one in part if one is not None and isfinite(one)] for part in parts]
    means = [sum(part) / len(part) if part else None for part in known]
    found = [one for one in means if one is not None]
    if not found:
        return ""
    low, reach = min(found), max(found) - min(found)
    return "".join(
        " " if one is None else BLOCKS[round((len(BLOCKS) - 1) * (one - low) / reach) if reach else 0] for one in means
    )


def draws_blocks() -> bool:
    """Whether standard output is a terminal that shows block characters."""
    return sys.stdout.isatty() and "utf" in (sys.stdout.encoding or "").lower()


def notify(line: str) -> None:
    """Print a line about progress."""
    print(plain_text(line), file=sys.stderr)
