"""The harness of `make ope-compare`, without the peers."""

import json

import numpy as np
import pytest

from benchmarks.ope_compare import (
    FIGURES,
    PAGE,
    answers_text,
    coverage,
    ours,
    short_logs,
    speed_text,
    texts,
    width,
)


def test_what_peers_are_given_gives_the_same_estimates_by_hand():
    """Arrays in probabilities, multiplied out in NumPy, say what `ope.estimate` says of the log."""
    logs = short_logs(2)
    given, found = logs.arrays(), ours(logs)
    taken = np.take_along_axis(given["probabilities"], given["action"][..., None], axis=3)[..., 0]
    weight = np.cumprod(taken / given["pscore"], axis=2)
    powers = given["settings"][0] ** np.arange(5)
    pdis = (weight * given["reward"]).mean(axis=1) @ powers
    tis = (weight[..., -1] * (given["reward"] @ powers)).mean(axis=1)
    np.testing.assert_allclose(found["pdis"]["values"], pdis, rtol=1e-5)
    np.testing.assert_allclose(found["tis"]["values"], tis, rtol=1e-5)
    q, v = (
        np.take_along_axis(given["q"], given["action"][..., None], 3)[..., 0],
        (given["q"] * given["probabilities"]).sum(3),
    )
    before = np.concatenate([np.ones_like(weight[..., :1]), weight[..., :-1]], axis=2)
    dr = (weight * (given["reward"] - q) + before * v).mean(axis=1) @ powers
    np.testing.assert_allclose(found["dr"]["values"], dr, rtol=1e-5)


def test_coverage_and_width():
    answers = {"intervals": {"t": [[0.0, 1.0], [2.0, 5.0]]}}
    assert coverage(answers, 0.5) == {"t": 0.5}
    assert width(answers, "t") == 2.0
    assert np.isnan(width(answers, "bootstrap"))


def test_a_peer_that_is_missing_is_said():
    assert "not installed" in answers_text(None)
    assert "not installed" in speed_text(None, {})


@pytest.mark.skipif(not FIGURES.exists(), reason="nothing has been measured")
@pytest.mark.parametrize("name", ["answers", "speed"])
def test_the_page_holds_what_was_measured(name):
    text = texts(json.loads(FIGURES.read_text()))[name]
    assert f"<!-- {name} -->\n{text}\n<!-- end {name} -->" in PAGE.read_text(), "run `make ope-compare`"
