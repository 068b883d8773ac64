"""Tables on standard output."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evarl.errors import plain_text

WIDE = 200


class PlainTable(Table):
    """A table whose cells are printed literally: without markup and without control characters."""

    def add_row(self, *cells: Any, **settings: Any) -> None:
        """Add a row of texts."""
        super().add_row(*(Text(plain_text(cell)) for cell in cells), **settings)


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal; elsewhere each row is one line."""
    terminal = Console()
    (terminal if terminal.is_terminal else Console(width=WIDE)).print(table)
