"""Tables as text: digits that are known and no others, and nothing in a cell that is taken for markup."""

import csv as standard
import io
import math

import pytest

from evarl.studies.reports import MeanAndError, ReportTable
from evarl.studies.tables import csv, interval, markdown, numeric, sort_value, text
from tests.studies.sample import RETURNS, SWEEP


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, "—"),
        ("as it is", "as it is"),
        (-7, "−7"),
        (True, "yes"),
        (20_000, "20\u202f000"),
        (-0.25, "−0.25"),
        (0.1 + 0.2, "0.3"),
        (-0.0, "0"),
        (math.nan, "NaN"),
        (-math.inf, "−∞"),
        (1.5e9, "1.5 × 10⁹"),
        (MeanAndError(-3.97, 0.006), "−3.9700 ± 0.0060"),
        (MeanAndError(-0.0004, 0.02), "0.000 ± 0.020"),
        (MeanAndError(0.5, 0.0996), "0.50 ± 0.10"),
        (MeanAndError(123456.7, 1234.0), "123\u202f457 ± 1234"),
        (MeanAndError(0.000021, 0.000003), "(2.10 ± 0.30) × 10⁻⁵"),
        (MeanAndError(2.0), "2"),
        (MeanAndError(2.0, 0.0), "2 ± 0"),
        (MeanAndError(0.0, 0.0), "0 ± 0"),
        (MeanAndError(1 / 3, 1e-17), "0.3333 ± 1 × 10⁻¹⁷"),
        (MeanAndError(math.nan, 0.1), "NaN ± 0.1"),
    ],
)
def test_cells(cell, shown):
    assert text(cell) == shown


def test_intervals_of_any_size_are_shown():
    assert interval(0.0, (-0.5, 0.5)) == ("+0.00", ("−0.50", "+0.50"))
    assert interval(2e-6, (1e-6, 3e-6)) == ("+2 × 10⁻⁶", ("+1 × 10⁻⁶", "+3 × 10⁻⁶"))
    assert interval(1.0, (1.0, 1.0)) == ("+1", ("+1", "+1"))
    assert interval(None, (-math.inf, 2.0)) == ("—", ("−∞", "+2"))


def test_sorting_is_by_the_mean():
    assert [sort_value(cell) for cell in (MeanAndError(2.0, 1.0), 3, None, "3", math.nan)] == [
        2.0,
        3.0,
        None,
        None,
        None,
    ]


def test_markdown_escapes_what_would_be_markup():
    table = ReportTable(
        "t", "a | b", ("x|y", "n"), (("p | q\n<b>`*\\", 1), ("r", None)), emphasised=frozenset({(1, 0)})
    )
    assert markdown(table) == (
        "**a \\| b**\n\n| x\\|y | n |\n| --- | ---: |\n| p \\| q \\<b>\\`\\*\\\\ | 1 |\n| **r** | — |\n"
    )


def test_markdown_has_true_signs_bold_and_the_note():
    shown = markdown(RETURNS)
    assert "| −3.9700 ± 0.0062 |" in shown
    assert "**0.0734 ± 0.0049**" in shown
    assert shown.endswith(f"\n\n{RETURNS.note}\n")
    assert {line.count("|") for line in shown.splitlines() if line.startswith("|")} == {len(RETURNS.columns) + 1}


def test_csv_parts_means_from_standard_errors_and_keeps_all_digits():
    rows = list(standard.DictReader(io.StringIO(csv(RETURNS))))
    assert list(rows[0])[2:6] == ["return", "return s.e.", "MAE of the evaluator", "MAE of the evaluator s.e."]
    for row, cells in zip(rows, RETURNS.rows, strict=True):
        assert float(row["return"]) == cells[2].mean
        assert float(row["return s.e."]) == cells[2].standard_error
    assert rows[0]["MAE of fitted Q evaluation"] == ""
    assert "−" not in csv(RETURNS) + csv(SWEEP)


def test_csv_of_a_column_that_is_measured_only_in_places():
    table = ReportTable(
        "t", "t", ("a", "b"), (("x, y", MeanAndError(1.0, 0.5)), ('"', 2), ("z", MeanAndError(3.0)), ("w", None))
    )
    assert csv(table) == 'a,b,b s.e.\n"x, y",1.0,0.5\n"""",2,\nz,3.0,\nw,,\n'


def test_columns_of_numbers_are_told_from_columns_of_words():
    table = ReportTable("t", "t", ("a", "b", "c"), ((1, "x", None), (None, 2, None)))
    assert numeric(table) == [True, False, False]
