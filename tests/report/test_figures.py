"""Figures are drawn without a screen; what they look like is judged by eye."""

import numpy as np

from evarl.certificates.explanations import Picture
from evarl.certificates.page import _figure
from evarl.evaluation.predictors import EVALUATOR
from evarl.evaluation.results import Evaluation, Queries, SeedEvaluation
from evarl.evaluation.scores import MeanAndError
from evarl.report.drawing import rendered
from evarl.report.figures import STYLES, evaluation_picture
from evarl.truth.monte_carlo import Truth


def test_a_picture_is_a_png_even_of_a_single_perfect_point():
    truth, zero = Truth(np.zeros(1), np.zeros(1), np.zeros(1), rollouts=2), MeanAndError(0.0)
    seed = SeedEvaluation(0, zero, zero, [], {"start": Queries(truth, {EVALUATOR: np.zeros((1, 1))})})
    numbers = {"beta": 0.0, "discount": 0.9, "horizon": 5, "rollouts": 2, "drawn": 1, "distinct": 1}
    texts = {"run": "a run", "world": "a world", "start_states": "1 of 1", "shuffled_with": None, "not_fitted": None}
    tables = {"seeds": [seed], "rows": [], "policies": {}, "best_without": {}, "notes": []}
    found = Evaluation(**numbers, **texts, **tables, discounted=zero, undiscounted=zero, passive=None)
    assert evaluation_picture(found).startswith(b"\x89PNG")
    assert len(set(STYLES.values())) == len(STYLES)


def test_a_figure_that_is_drawn_again_has_the_same_bytes():
    values = np.random.default_rng(0).normal(size=60)
    picture = Picture(values, "return", "", {"mean": 0.1, "J is at least": -0.3}, (-5.0, 5.0))
    assert _figure(picture) == _figure(picture)
    assert _figure(picture) != _figure(Picture(values + 1e-3, "return", "", picture.lines, picture.range))
    both = [rendered("twice", (3.0, 2.0), lambda figure: figure.subplots().plot(values)) for _ in range(2)]
    assert both[0] == both[1]
    assert [one[:5] for one in both[0]] == [b"\x89PNG\r", b"<?xml"]


def test_the_title_does_not_touch_the_legend(monkeypatch):
    """In one panel, as of worlds on the host, and with a long name."""
    drawn = []

    def kept(name, size, draw, formats):
        def drawing(figure):
            draw(figure)
            drawn.append(figure)

        return rendered(name, size, drawing, formats)

    monkeypatch.setattr("evarl.report.figures.rendered", kept)
    truth, zero = Truth(np.zeros(1), np.zeros(1), np.zeros(1), rollouts=2), MeanAndError(0.0)
    seed = SeedEvaluation(0, zero, zero, [], {"start": Queries(truth, dict.fromkeys(STYLES, np.zeros((1, 1))))})
    numbers = {"beta": 0.05, "discount": 0.9, "horizon": 5, "rollouts": 2, "drawn": 1, "distinct": 1}
    world = "gymnasium/MountainCarContinuous-v0"
    texts = {"run": "a run", "world": world, "start_states": "1 of 1", "shuffled_with": None, "not_fitted": None}
    tables = {"seeds": [seed], "rows": [], "policies": {}, "best_without": {}, "notes": []}
    evaluation_picture(Evaluation(**numbers, **texts, **tables, discounted=zero, undiscounted=zero, passive=None))
    (figure,) = drawn
    assert not figure._suptitle.get_window_extent().overlaps(figure.legends[0].get_window_extent())
