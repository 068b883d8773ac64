"""Tables and numbers as text: for people (Markdown, and the cells of the page) and for programs (CSV)."""

import io
import math
from collections.abc import Sequence
from csv import writer

from evarl.report.markdown import escaped, markdown_table
from evarl.studies.reports import Cell, MeanAndError, ReportTable

DASH = "—"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def text(cell: Cell) -> str:
    """What a reader sees of a cell.

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
    """A number of unknown precision: 4 significant digits.

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
    """Numbers with the decimals that are known: `spread` keeps two digits.

    >>> fixed([1.23456, -0.001], 0.04), fixed([1.23456], 0.0149, plus=True)
    (['1.235', '−0.001'], ['+1.235'])
    """
    decimals = max(0, 1 - int(f"{spread:.1e}".split("e")[1]))
    # Adding 0 makes −0 to 0, which is what is left of small negative numbers.
    rounded = [round(value, decimals) + 0.0 for value in values]
    return [_signed(f"{value:{'+' if plus else ''}{_grouping(value)}.{decimals}f}") for value in rounded]


def interval(effect: float | None, bounds: tuple[float, float] | None) -> tuple[str, tuple[str, str] | None]:
    """An effect and its interval with their signs, as precise as the interval allows.

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
    """By what a cell is sorted if it is a number; a measured one by its mean."""
    value = cell.mean if isinstance(cell, MeanAndError) else cell
    return None if value is None or isinstance(value, str) or math.isnan(value) else float(value)


def numeric(table: ReportTable, column: int) -> bool:
    """Whether a column holds numbers and nothing else, dashes aside."""
    cells = [row[column] for row in table.rows if row[column] is not None]
    return bool(cells) and not any(isinstance(cell, str) for cell in cells)


def markdown(table: ReportTable) -> str:
    """The table in Markdown, with its title and its note."""
    cells = [
        [_bold(text(cell)) if (i, j) in table.emphasised else escaped(text(cell)) for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    numbers = [numeric(table, column) for column in range(len(table.columns))]
    rows = markdown_table([escaped(name) for name in table.columns], cells, numbers)
    return "\n\n".join(filter(None, (_bold(table.title), rows, escaped(table.note)))) + "\n"


def csv(table: ReportTable) -> str:
    """All digits, ASCII signs; a column with measured cells becomes two, its mean and its standard error."""
    measured = [
        any(isinstance(row[column], MeanAndError) for row in table.rows) for column in range(len(table.columns))
    ]
    file = io.StringIO()
    out = writer(file, lineterminator="\n")
    out.writerow(
        name
        for column, two in zip(table.columns, measured, strict=True)
        for name in ([column, f"{column} s.e."] if two else [column])
    )
    for row in table.rows:
        out.writerow(
            value
            for cell, two in zip(row, measured, strict=True)
            for value in (
                ([cell.mean, cell.standard_error] if isinstance(cell, MeanAndError) else [cell, None])
                if two
                else [cell]
            )
        )
    return file.getvalue()


def _bold(words: str) -> str:
    return f"**{escaped(words)}**" if words.strip() else ""


def _power(values: Sequence[float]) -> int:
    """The power of ten to write beside numbers that are too small or too large to be read; otherwise 0."""
    largest = max(map(abs, values))
    return 0 if largest == 0 or 1e-4 <= largest < 1e7 else math.floor(math.log10(largest))


def _tens(power: int) -> str:
    """A power of ten beside a number."""
    return f" × 10{str(power).translate(SUPERSCRIPT)}"


def _grouping(value: float) -> str:
    """How digits are grouped: not at all in numbers of four, which are read at a glance."""
    return "_" if abs(value) >= 10_000 else ""


def _signed(digits: str) -> str:
    """With a true minus sign, and a narrow space that does not break between groups of digits."""
    return digits.replace("-", "−").replace("_", "\u202f")


def _plus(value: float) -> str:
    """A number with its sign, whichever it is."""
    return f"+{number(value)}" if value > 0 else number(value)
