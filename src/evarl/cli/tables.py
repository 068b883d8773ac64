"""Tables on standard output."""

from rich.console import Console
from rich.table import Table

WIDE = 200


def print_table(table: Table) -> None:
    """Fit a table to the terminal; anywhere else its rows stay on one line each."""
    terminal = Console()
    (terminal if terminal.is_terminal else Console(width=WIDE)).print(table)
