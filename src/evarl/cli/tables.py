"""Tables on standard output."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evarl.errors import plain_text

WIDE = 200


class PlainTable(Table):
    """A table whose cells are shown as they are: no markup, and nothing that steers the terminal."""

    def add_row(self, *cells: Any, **settings: Any) -> None:
        """Add a row of texts."""
        super().add_row(*(Text(plain_text(cell)) for cell in cells), **settings)


def print_table(table: Table) -> None:
    """Fit a table to the terminal; anywhere else its rows stay on one line each."""
    terminal = Console()
    (terminal if terminal.is_terminal else Console(width=WIDE)).print(table)
