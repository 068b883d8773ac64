"""What an evaluator with a diverse memory says beside a prediction: intervals by hand, and a warning where it knows nothing."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import evarl
from evarl.assessment import Behaviour
from evarl.cli.main import call
from evarl.evaluation.knowledge import DOUBT, FLOOR, SHARE, difficulty, judge, tolerance_quantile
from evarl.evaluators.knowledge import Knowledge, Known
from tests.evaluation.tiny import train_tiny, with_evaluators


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> evarl.Run:
    """A run with a diverse memory of 150 slots, 30 of them held out."""
    base = evarl.preset("navigation")
    network = dataclasses.replace(base.evaluator.network, width=8, layers=1)
    kept = {"memory": "diverse", "reservoir": 150, "perturbed": 25, "perturbed_environments": 2, "diversify_every": 1}
    evaluator = dataclasses.replace(base.evaluator, **kept, network=network, warmup=2, initial_steps=5)
    agent = dataclasses.replace(base.agent, hidden_sizes=(8,))
    sizes = {"environments": 4, "steps": 32, "updates": 6, "seeds": 2, "rollouts_per_start": 2, "beta": 0.05}
    config = dataclasses.replace(base, agent=agent, evaluator=evaluator, **sizes)
    return evarl.train(config, out=tmp_path_factory.mktemp("diverse") / "run", quiet=True)


def known(shown, returned, predicted) -> Known:
    numbers = (np.asarray(x, np.float32) for x in (returned, predicted))
    return Known(Behaviour(np.asarray(shown, np.float32)), *numbers)


def line(count: int, offset: float = 0.0) -> np.ndarray:
    """Behaviours at distance 1 from one another."""
    return np.broadcast_to(np.arange(count)[:, None] + offset, (count, 4)).astype(np.float32)


def test_the_interval_by_hand(run):
    """Fitted errors are 1 everywhere, so that u = 1 + FLOOR; of 46 held-out errors 1 … 46 the 45th is the margin.

    P(Binomial(46, 0.1) ≤ 1) = 0.9^46 + 46 · 0.1 · 0.9^45 = 0.048, so that k = 2.
    """
    fitted = known(line(60), np.arange(60), np.arange(60) + 1)
    held_out = known(line(46, 0.5), np.zeros(46), np.arange(1, 47))
    learnt = run.evaluator_state(0).replace(knowledge=Knowledge(fitted, held_out, Behaviour(line(2))))
    found = judge(learnt, Behaviour(np.full(4, 7.0, np.float32)), -30.0)
    assert found.interval.low == pytest.approx(-75.0)
    assert found.interval.high == pytest.approx(15.0)
    assert (found.interval.share, found.interval.confidence) == (0.9, 0.95)
    assert found.interval.policies == 46
    assert found.outside.reach == pytest.approx(45.0)  # of a range of 59
    clipped = judge(learnt, Behaviour(np.full(4, 7.0, np.float32)), -30.0, (-40.0, 1.0))
    assert (clipped.interval.low, clipped.interval.high) == pytest.approx((-40.0, 1.0))
    few = learnt.replace(knowledge=Knowledge(fitted, known(line(28), np.zeros(28), np.ones(28)), Behaviour(line(2))))
    told = judge(few, Behaviour(np.zeros(4, np.float32)), 0.0)
    assert told.interval is None
    assert "28 held-out policies are too few for 90% at confidence 95%, which takes 29" in told.no_interval


def test_the_share_is_reached_in_19_of_20_runs():
    """Uniform scores: the share below a quantile is the quantile itself, at least 0.9 with probability 0.95 or a little more."""
    drawn = np.random.default_rng(0).uniform(size=(2000, 80))
    reached = np.mean([tolerance_quantile(scores) >= SHARE for scores in drawn])
    exact = stats.beta.sf(SHARE, 77, 4)  # the 77th of 80 uniform numbers
    assert exact >= 1 - DOUBT
    assert abs(reached - exact) < 4 * (exact * (1 - exact) / len(drawn)) ** 0.5


def test_difficulty_is_the_error_nearby():
    errors = np.r_[np.zeros(10), np.full(10, 4.0)]
    fitted = known(line(20), errors, np.zeros(20))
    points = np.array([[0.0] * 4, [19.0] * 4])
    np.testing.assert_allclose(difficulty(points, line(20).astype(float), fitted), [2 * FLOOR, 4 + 2 * FLOOR])


def test_behaviour_far_from_all_that_is_remembered_is_outside(run):
    knowledge = Knowledge(
        *(known(line(60), np.arange(60), np.arange(60) + 1) for _ in range(2)), Behaviour(line(10, 0.25))
    )
    learnt = run.evaluator_state(0).replace(knowledge=knowledge)
    for place in (0.0, 17.0, 59.0, 40.5):
        assert judge(learnt, Behaviour(np.full(4, place, np.float32)), 0.0).outside is None
    found = judge(learnt, Behaviour(np.full(4, 64.0, np.float32)), 0.0)
    deviation = ((60**2 - 1) / 12) ** 0.5  # of the numbers 0 to 59
    assert found.outside.distance == pytest.approx(5.0 / deviation, rel=1e-5)
    assert found.p_value == found.outside.p_value == pytest.approx(1 / 71)
    assert "the nearest of 70 remembered behaviours is 0.29 deviations away" in str(found.outside)


def test_what_is_known_is_saved_and_read_again(run):
    knowledge = run.evaluator_state(1).knowledge
    assert (len(knowledge.others.returned), len(knowledge.held_out.returned)) == (120, 30)
    assert knowledge.earlier.rolled_out.shape == (6, 4)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(knowledge))


@pytest.mark.slow
def test_assess_gives_an_interval_and_says_first_what_it_does_not_know(run, tmp_path, capsys):
    assert call(["assess", str(run.path), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["interval"]["low"] < plain["predicted"] < plain["interval"]["high"]
    assert (plain["interval"]["policies"], plain["no_interval"]) == (30, None)
    assert 0 < plain["p_value"] <= 1

    def elsewhere(seed, learnt):  # as if it remembered nothing but behaviour of another kind, 10 times over
        moved = lambda tree: jax.tree.map(lambda x: jnp.concatenate([x + 500.0] * 10), tree)  # noqa: E731
        known = learnt.knowledge
        tripled = jax.tree.map(lambda x: jnp.concatenate([x] * 10), known.others)
        fitted = tripled.replace(behaviour=moved(known.others.behaviour))
        return learnt.replace(knowledge=known.replace(others=fitted, earlier=moved(known.earlier)))

    changed = with_evaluators(run, tmp_path / "elsewhere", elsewhere)
    assert call(["assess", str(changed.path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("outside what this evaluator knows: the nearest of 1260 remembered behaviours is ")
    assert "90% interval " in out
    assert call(["assess", str(changed.path), "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)["outside"]
    assert told["p_value"] < told["level"]
    assert f"warning: outside what this evaluator knows: {told['reason']}" in err
    assert evarl.assess(changed).judgement.outside.p_value == told["p_value"]


def test_behaviour_like_that_of_mispredicted_policies_is_outside(run):
    """Policies 0 to 29 are predicted exactly and 30 to 59 wrong by 4, where all returns lie within 20 of one another."""
    wrong = np.r_[np.zeros(30), np.full(30, 4.0)]
    returned = np.linspace(-20.0, 0.0, 60)
    others = known(line(60), returned, returned + wrong)
    knowledge = Knowledge(others, known(line(60, 0.01), returned, returned + wrong), Behaviour(line(2)))
    learnt = run.evaluator_state(0).replace(knowledge=knowledge)
    near = judge(learnt, Behaviour(np.full(4, 10.0, np.float32)), -5.0)
    assert near.outside is None
    assert near.interval.high - near.interval.low < 2 * 0.15 * 20
    far = judge(learnt, Behaviour(np.full(4, 50.0, np.float32)), -5.0)
    assert (far.outside.error, far.outside.spread, far.outside.policies) == pytest.approx((4.0, 20.0, 5))
    assert far.outside.reach == pytest.approx((far.interval.high - far.interval.low) / 2)
    assert far.outside.reach > 0.15 * 20
    assert "the 5 perturbed policies that behaved most alike were mispredicted by 4 on average" in str(far.outside)


@pytest.mark.slow
def test_an_evaluator_of_recent_policies_is_calibrated_when_it_is_first_asked(tmp_path, capsys):
    recent = train_tiny(tmp_path / "recent")
    assert call(["assess", str(recent.path), "--no-interval"]) == 0
    assert "no interval: it was not asked for" in capsys.readouterr().out
    assert not (recent.path / "calibrated").exists()
    assert call(["assess", str(recent.path), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["interval"]["policies"] == 50
    assert first["interval"]["low"] <= first["predicted"] <= first["interval"]["high"]
    file = recent.path / "calibrated" / "seed-0.safetensors"
    written = file.stat().st_mtime_ns
    again = evarl.assess(recent).judgement  # from the file
    assert (again.interval.low, again.interval.high) == (first["interval"]["low"], first["interval"]["high"])
    assert file.stat().st_mtime_ns == written
    file.write_bytes(b"damaged")
    assert evarl.assess(recent).judgement.interval == again.interval
    assert file.stat().st_mtime_ns != written


@pytest.mark.slow
def test_what_was_calibrated_for_another_evaluator_is_not_used(tmp_path):
    run = train_tiny(tmp_path / "run")
    evarl.assess(run)
    run.keep_calibrated(0, run.calibrated_evaluator(0))
    other = run.evaluator_state(0)
    other = other.replace(state=jax.tree.map(lambda x: x + 1 if x.dtype == jnp.float32 else x, other.state))
    run.keep_calibrated(0, other.replace(knowledge=run.calibrated_evaluator(0).knowledge))
    assert evarl.assess(run).judgement == evarl.assess(run).judgement
    np.testing.assert_array_equal(
        jax.tree.leaves(run.calibrated_evaluator(0).state)[0], jax.tree.leaves(run.evaluator_state(0).state)[0]
    )
