"""Figures of reports, as Matplotlib has them before they are rendered."""

import numpy as np
import pytest

from evarl.studies import figures
from evarl.studies.reports import MeanAndError


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn."""
    found = []

    def rendered(name, size, draw):
        from matplotlib.figure import Figure

        figure = Figure(figsize=size)
        draw(figure)
        found.append(figure)
        return b"", b""

    monkeypatch.setattr(figures, "rendered", rendered)
    return found


@pytest.mark.parametrize("log", [True, False])
def test_bars_stand_on_linear_axes_only(drawn, log):
    values = {"evaluator": MeanAndError(0.1, 0.01), "critic": MeanAndError(10.0, 1.0)}
    figures.bars("a", "a", {"game": values}, "MAE", ("evaluator",), log=log)
    (panel,) = drawn[0].axes
    assert panel.get_xscale() == ("log" if log else "linear")
    assert len(panel.patches) == (0 if log else 2)
    assert [text.get_text() for text in panel.texts] == ["0.1", "10"]


def test_what_was_not_measured_has_no_panel(drawn):
    band = np.arange(3.0), np.array([[0.0, 1.0, 2.0], [0.0, 3.0, 4.0]])
    rows = {"return": {"one": {"β = 0": band}, "two": {"β = 0": band}}, "error": {"one": {}, "two": {"β = 0": band}}}
    figures.curves("a", "a", rows)
    seen = {axes: axes.get_visible() for axes in drawn[0].axes}
    assert list(seen.values()) == [True, True, False, True]
    first, second, _, below = seen
    assert (first.get_xlabel(), second.get_xlabel()) == ("environment steps", "")
    assert (below.get_xlabel(), below.get_ylabel()) == ("environment steps", "error")


def test_axes_show_the_seeds_and_not_an_interval_of_two(drawn):
    band = np.arange(2.0), np.array([[0.0, 10.0], [4.0, 6.0]])  # Student's interval reaches from −23 to 27
    figures.curves("a", "a", {"return": {"one": {"β = 0": band}}})
    assert drawn[0].axes[0].get_ylim() == (-0.5, 10.5)
