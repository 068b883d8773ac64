"""Report tables and numbers as text: Markdown, cells of the HTML page, and CSV."""

import io
import itertools
import math
from collections.abc import Sequence
from csv import writer
from dataclasses import astuple

from evarl.report.markdown import escaped, markdown_table
from evarl.studies.reports import Cell, MeanAndError, ReportTable

DASH = "—"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def text(cell: Cell) -> str:
    """A cell as shown to readers.

    >>> text(MeanAndError(-3.97, 0.0062)), text(MeanAndError(0.123, 0.0151)), text(MeanAndError(31.0)), text(None)
    ('−3.9700 ± 0.0062', '0.123 ± 0.015', '31', '—')
    """
    if cell is None:
        return DASH
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return _signed(f"{cell:{_grouping(cell)}}")
    if isinstance(cell, float):
        return number(cell)
    if not isinstance(cell, MeanAndError):
        return str(cell)
    if cell.standard_error is None:
        return number(cell.mean)
    values = (cell.mean, cell.standard_error)
    if not all(map(math.isfinite, values)) or cell.standard_error <= 1e-6 * abs(cell.mean):
        return " ± ".join(map(number, values))
    power = _power(values)
    mean, error = fixed([value / 10.0**power for value in values], cell.standard_error / 10.0**power)
    return f"({mean} ± {error}){_tens(power)}" if power else f"{mean} ± {error}"


def number(value: float) -> str:
    """A number with 4 significant digits.

    >>> [number(value) for value in (0.5, -12.3456, 123456.7, 0.00001234, math.inf, math.nan)]
    ['0.5', '−12.35', '123\u202f457', '1.234 × 10⁻⁵', '∞', 'NaN']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if power := _power([value]):
        return _signed(f"{value / 10.0**power:.4g}") + _tens(power)
    return text(round(value)) if abs(value) >= 1000 else _signed(f"{value + 0.0:.4g}")


def fixed(values: Sequence[float], spread: float, *, plus: bool = False) -> list[str]:
    """Numbers rounded to the decimals at which `spread` has two significant digits.

    >>> fixed([1.23456, -0.001], 0.04), fixed([1.23456], 0.0149, plus=True)
    (['1.235', '−0.001'], ['+1.235'])
    """
    decimals = max(0, 1 - int(f"{spread:.1e}".split("e")[1]))
    # Adding 0 turns −0, the rounded form of small negative numbers, into 0.
    rounded = [round(value, decimals) + 0.0 for value in values]
    return [_signed(f"{value:{'+' if plus else ''}{_grouping(value)}.{decimals}f}") for value in rounded]


def interval(effect: float | None, bounds: tuple[float, float] | None) -> tuple[str, tuple[str, str] | None]:
    """An effect and its interval as signed text, rounded by the width of the interval.

    >>> interval(0.4123, (0.3017, 0.5229)), interval(-1.5, None), interval(None, None)
    (('+0.412', ('+0.302', '+0.523')), ('−1.5', None), ('—', None))
    """
    if bounds is None:
        return DASH if effect is None else _plus(effect), None
    known = (*bounds, *([] if effect is None else [effect]))
    spread = (bounds[1] - bounds[0]) / 4
    if not all(map(math.isfinite, known)) or spread <= 1e-6 * max(map(abs, known)) or _power(known):
        shown = [_plus(value) for value in known]
    else:
        shown = fixed(known, spread, plus=True)
    return DASH if effect is None else shown[2], (shown[0], shown[1])


def sort_value(cell: Cell) -> float | None:
    """The number that a cell is sorted by, for a mean with its error the mean; None for text."""
    value = cell.mean if isinstance(cell, MeanAndError) else cell
    return None if value is None or isinstance(value, str) or math.isnan(value) else float(value)


def numeric(table: ReportTable) -> list[bool]:
    """Whether the cells of each column are numbers, without those that are empty."""
    columns = [[row[j] for row in table.rows if row[j] is not None] for j in range(len(table.columns))]
    return [bool(cells) and not any(isinstance(cell, str) for cell in cells) for cells in columns]


def markdown(table: ReportTable) -> str:
    """The table in Markdown, with its title and its note."""
    cells = [
        [_bold(text(cell)) if (i, j) in table.emphasised else escaped(text(cell)) for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    rows = markdown_table([escaped(name) for name in table.columns], cells, numeric(table))
    return "\n\n".join(filter(None, (_bold(table.title), rows, escaped(table.note)))) + "\n"


def csv(table: ReportTable) -> str:
    """The table as CSV with all digits; a column of means with errors becomes two columns."""
    measured = {column for row in table.rows for column, cell in enumerate(row) if isinstance(cell, MeanAndError)}
    file = io.StringIO()
    out = writer(file, lineterminator="\n")
    heads = [(name, f"{name} s.e.") if column in measured else (name,) for column, name in enumerate(table.columns)]
    out.writerow(itertools.chain(*heads))
    for row in table.rows:
        cells = [
            astuple(cell) if isinstance(cell, MeanAndError) else (cell, None) if column in measured else (cell,)
            for column, cell in enumerate(row)
        ]
        out.writerow(itertools.chain(*cells))
    return file.getvalue()


def _bold(words: str) -> str:
    return f"**{escaped(words)}**" if words.strip() else ""


def _power(values: Sequence[float]) -> int:
    """The power of ten to factor out of very small or very large numbers; otherwise 0."""
    largest = max(map(abs, values))
    return 0 if largest == 0 or 1e-4 <= largest < 1e7 else math.floor(math.log10(largest))


def _tens(power: int) -> str:
    """A power of ten as a factor."""
    return f" × 10{str(power).translate(SUPERSCRIPT)}"


def _grouping(value: float) -> str:
    """Format code that groups digits, from 10 000 on."""
    return "_" if abs(value) >= 10_000 else ""


def _signed(digits: str) -> str:
    """Digits with a true minus sign, and narrow no-break spaces between groups."""
    return digits.replace("-", "−").replace("_", "\u202f")


def _plus(value: float) -> str:
    """A number with its sign, also if it is positive."""
    return f"+{number(value)}" if value > 0 else number(value)
