"""The harness of `make ope-coverage`: its worlds, its verdicts, and the page that it fills."""

import json

import numpy as np
import pytest

from benchmarks import ope_coverage, ope_coverage_cases as cases
from benchmarks.ope_coverage import CASES, FIGURES, PAGE, Job, jobs, opened, run_job, truth, write
from benchmarks.ope_coverage_table import Row, full_table, page_text, rows
from evarl import ope


@pytest.mark.parametrize("case", [case for case in CASES if case.horizon == 5], ids=lambda case: case.name)
def test_worlds_are_what_their_names_say(case):
    world = case.world
    assert np.allclose(world.probability.sum(axis=2), 1)
    assert (world.start > 0).sum() == (cases.STATES if case.many else 1)
    square = world.variances["weight"]
    if case.kind == "smooth":
        assert square == pytest.approx(3.0)
    if case.kind == "crashes":
        assert square == pytest.approx(2.0, rel=0.05)
        assert cases._entered(world, len(world.start) - 1) == pytest.approx(cases.CRASHES)
    if case.kind == "heavy":
        first = world.start.argmax()
        ratio, chance = world.ratio[first], world.behaviour[first]
        slope = np.polyfit(np.log(ratio), np.log(np.cumsum(chance[::-1])[::-1]), 1)[0]
        assert slope == pytest.approx(-cases.INDEX, abs=0.1)
        assert 200 * chance[-1] < 0.01  # what has the largest ratio is not in the log
    if case.many:
        spread = world.start @ world.values[0][0] ** 2 - world.value**2
        assert spread > 0.1 * world.variances["dr"] * (case.kind == "smooth")


@pytest.mark.parametrize("method", ["tis", "pdis"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_ranges_hold_every_contribution(kind, method):
    case = cases.Case(kind, 5, True)
    world, data = case.world, case.world.sample(5000, 3)
    state = np.asarray(data.observation).argmax(axis=2)
    weight = np.cumprod(world.ratio[state, np.asarray(data.action)], axis=1)
    reward = np.asarray(data.reward, np.float64) * world.discount ** np.arange(world.horizon)
    found = (weight * reward).sum(axis=1) if method == "pdis" else weight[:, -1] * reward.sum(axis=1)
    low, high = cases.contribution_range(world, method)
    assert low <= found.min() < found.max() <= high


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ((400, 0, 400, 376, 24), "holds"),  # 94 ± 1.2
        ((400, 0, 400, 368, 32), "misleads"),  # 92 ± 1.4
        ((400, 360, 400, 200, 40), "warned"),
        ((400, 359, 400, 200, 10), "misleads"),
        ((400, 0, 0, 0, 0), "no interval"),
    ],
)
def test_verdicts(counts, verdict):
    assert Row("", "", "t", *counts).verdict == verdict


def test_jobs_are_counted_and_kept(tmp_path):
    case = CASES[0]
    made = jobs((case, CASES[-1]), ("wdr", "pdis", "dr", "wis"), 30)
    assert [(job.methods, job.first, job.last) for job in made if job.case == case] == [
        (group, *block) for group in (("pdis", "wis"), ("wdr", "dr")) for block in ((0, 20), (20, 30))
    ]
    assert [job.case for job in made] == [case, CASES[-1]] * 4
    found = opened(tmp_path / "figures.json", ("pdis", "wis"))
    for job in (Job(case, ("pdis", "wis"), 0, 3), Job(case, ("pdis", "wis"), 3, 5)):
        found["jobs"][job.name] = run_job(job)
    write(tmp_path / "figures.json", found)
    again = opened(tmp_path / "figures.json", ("pdis", "wis"))
    assert again == json.loads(json.dumps(found))
    assert opened(tmp_path / "figures.json", ("pdis",))["jobs"] == {}
    made = {(row.method, row.interval): row for row in rows(again)}
    assert made.keys() >= {("pdis", "t"), ("pdis", "bernstein"), ("wis", "bootstrap")}
    assert all(row.runs == 5 for row in made.values())
    bound = made["pdis", "hoeffding"]
    assert bound.covered == bound.given == 5
    assert "| `pdis` | hoeffding | 5 | 100.0 ± 0.0 |" in full_table(again)
    assert "| `pdis` | hoeffding | 5 | 1 |" in page_text(again)


def test_a_method_that_fails_does_not_end_the_others():
    class Broken:
        name, label, needs = "broken", "broken", ()

        def estimate(self, log, policy, settings):
            raise ZeroDivisionError("no")

    ope.register(Broken())
    try:
        job = Job(CASES[0], ("broken", "pdis"), 0, 2)
        counts = run_job(job)
    finally:
        ope.unregister("broken")
    assert counts["broken"]["errors"] == {"ZeroDivisionError: no": 2}
    found = rows({"methods": ["broken", "pdis"], "jobs": {job.name: counts}})
    assert [(row.interval, row.verdict) for row in found if row.method == "broken"] == [("refused", "no interval")]
    assert any(row.method == "pdis" and row.given == 2 for row in found)


def test_options_that_do_not_exist_are_left_out(monkeypatch):
    monkeypatch.setitem(ope_coverage.SMALL, "no_such_option", 3)
    made = ope_coverage.settings("pdis", CASES[0], 5)
    assert made.fqe.hidden_sizes == (16,)
    assert made.random_seed == 5


@pytest.mark.skipif(not FIGURES.exists(), reason="coverage has not been measured")
def test_the_page_holds_what_was_measured():
    text = page_text(json.loads(FIGURES.read_text()))
    assert f"<!-- coverage -->\n{text}\n<!-- end coverage -->" in PAGE.read_text(), "run `make ope-coverage`"


def test_the_truth_is_that_of_what_is_estimated():
    """Estimates say which policy they are of, and over how many steps."""

    class Said:
        def __init__(self, estimand):
            self.estimand = estimand

    case = CASES[0]
    world = case.world
    assert truth(case, object()) == truth(case, Said("return of the policy over 5 steps")) == world.value
    v = np.zeros(len(world.start))
    for _ in range(5000):
        v = (world.target * (world.probability * (world.reward + world.discount * v[world.following])).sum(axis=2)).sum(
            axis=1
        )
    assert truth(case, Said("return of the policy without a time limit")) == pytest.approx(world.start @ v)
    greedy = truth(case, Said("return of the policy's most probable actions over 5 steps"))
    assert greedy == world.of_most_probable_actions.value != world.value
