"""Figures as text: tables for the terminal and the same for Markdown, medians with quartiles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.table import Table

from evarl.cli.tables import print_table
from evarl.report.markdown import markdown_table

Quartiles = tuple[float, float, float]


@dataclass
class Sheet:
    """A table and what is said above it."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """One more row."""
        self.rows.append(cells)

    def show(self) -> None:
        """On standard output."""
        table = Table(*self.columns, box=None)
        for row in self.rows:
            table.add_row(*row)
        print(f"\n{self.title}")
        print_table(table)

    def markdown(self) -> str:
        """As Markdown; the first two columns are words, the others figures."""
        numeric = [number >= 2 for number in range(len(self.columns))]
        return "\n".join([self.title, "", markdown_table(self.columns, self.rows, numeric), ""])


def quartiles(values: Sequence[float] | np.ndarray) -> Quartiles:
    """Lower quartile, median, upper quartile.

    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
    (2.0, 3.0, 4.0)
    """
    low, middle, high = np.quantile(np.asarray(values, float), (0.25, 0.5, 0.75))
    return float(low), float(middle), float(high)


def spread(values: Sequence[float] | np.ndarray, form: Callable[[float], str]) -> str:
    """Median and quartiles.

    >>> spread([1.0, 2.0, 3.0], "{:.1f}".format)
    '2.0 (1.5–2.5)'
    """
    low, middle, high = quartiles(values)
    return f"{form(middle)} ({form(low)}–{form(high)})"


def thousands(value: float) -> str:
    """A rate, in thousands.

    >>> thousands(1234567.0), thousands(4321.0)
    ('1,235k', '4.32k')
    """
    return f"{value / 1e3:,.0f}k" if value >= 1e5 else f"{value / 1e3:.3g}k"


def ratio(value: float) -> str:
    """A ratio, to three digits from 1 on.

    >>> ratio(0.123), ratio(12.34)
    ('0.12', '12.3')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.3g}"


def optional(value: float | None, form: Callable[[float], str]) -> str:
    """Nothing where nothing is known."""
    return "" if value is None else form(value)
