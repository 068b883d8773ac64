"""Learning curves: what is drawn follows from the metrics."""

import numpy as np
import pytest
from PIL import Image

import evarl
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.report.curves import learning_curve


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    out = tmp_path_factory.mktemp("curves") / "run"
    return evarl.train("navigation", environments=2, steps=50, updates=6, seeds=3, out=out, quiet=True)


def values(run: evarl.Run, metric: str = "return") -> np.ndarray:
    frame = run.metrics.to_pandas()
    return frame.pivot_table(index="seed", columns="update", values=metric).to_numpy(np.float64)


def test_a_curve_is_the_mean_over_seeds_with_its_t_interval(run):
    curve = learning_curve(run, "return", "a", smooth=1)
    wanted = values(run)
    assert np.array_equal(curve.x, 100.0 * np.arange(1, 7))
    np.testing.assert_allclose(curve.values, wanted)
    np.testing.assert_allclose(curve.middle, wanted.mean(axis=0))
    reach = 4.302652729911275 * wanted.std(axis=0, ddof=1) / 3**0.5  # t with 2 degrees of freedom
    np.testing.assert_allclose(curve.high, wanted.mean(axis=0) + reach)
    np.testing.assert_allclose(curve.low, wanted.mean(axis=0) - reach)


def test_smoothing_is_over_the_last_updates_of_each_seed(run):
    curve, wanted = learning_curve(run, "entropy", "a", "updates", 2), values(run, "entropy")
    assert np.array_equal(curve.x, np.arange(1, 7))
    np.testing.assert_allclose(curve.values[:, 0], wanted[:, 0])
    np.testing.assert_allclose(curve.values[:, 1:], (wanted[:, 1:] + wanted[:, :-1]) / 2)


def test_the_last_moment_of_the_time_axis_is_the_time_of_the_run(run):
    assert learning_curve(run, "return", "a", "time").x[-1] == pytest.approx(run.summary["seconds"])


def test_a_figure_has_a_panel_for_each_metric_and_a_line_for_each_run_and_seed(run):
    figure = evarl.plot([run, str(run.path)], ["return", "entropy"], labels=["one", "two"])
    first, second = figure.axes
    assert first.get_ylabel() == "return of an episode, undiscounted"
    assert second.get_ylabel() == "entropy of the policy, in nats"
    assert first.get_xlabel() == "environment steps per seed"
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["one (3 seeds)", "two (3 seeds)"]
    assert len(first.get_lines()) == 2 * (3 + 1)
    np.testing.assert_allclose(first.get_lines()[3].get_ydata(), values(run).mean(axis=0))


def test_the_command_writes_the_picture(run, capsys, tmp_path):
    assert call(["plot", str(run.path), "--summary", "iqm"]) == 0
    assert capsys.readouterr().out == f"picture in {run.path / 'curves.png'}\n"
    with Image.open(run.path / "curves.png") as picture:
        assert picture.format == "PNG"
    for ending, begins in ((".svg", b"<?xml"), (".pdf", b"%PDF")):
        assert call(["plot", str(run.path), "--out", str(tmp_path / f"a{ending}")]) == 0
        assert (tmp_path / f"a{ending}").read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "retrun"}, "metric: unknown 'retrun'; did you mean 'return'"),
        ({"metric": "seed"}, "metric: unknown 'seed'"),
        ({"metric": ()}, "metric: is missing"),
        ({"labels": ["a", "b"]}, "labels: 2 labels for 1 runs are not allowed; must be one for each run"),
        ({"x": "hours"}, "x: unknown 'hours'"),
        ({"summary": "median"}, "summary: unknown 'median'"),
        ({"smooth": 0}, "smooth: 0 is not allowed"),
    ],
)
def test_bad_input_is_refused(run, options, message):
    with pytest.raises(InputError, match=message):
        evarl.plot(run, **options)


@pytest.mark.slow
def test_two_seeds_have_no_interval(tmp_path):
    run = evarl.train("navigation", environments=2, steps=50, updates=2, seeds=2, out=tmp_path / "run", quiet=True)
    for summary in ("mean", "iqm"):
        curve = learning_curve(run, "return", "a", smooth=1, summary=summary)
        np.testing.assert_allclose(curve.middle, values(run).mean(axis=0))
        assert np.isnan([curve.low, curve.high]).all()
    (panel,) = evarl.plot(run).axes
    assert (len(panel.get_lines()), len(panel.collections)) == (2 + 1, 0)
    assert panel.get_legend().get_title().get_text() == "mean over seeds"
