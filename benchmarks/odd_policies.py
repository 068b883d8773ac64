"""Twenty odd policies, asked of the evaluator of a run in navigation: prediction, interval, warning and truth of each.

    python -m benchmarks.odd_policies [--run RUN] [--seed 0] [--settings '{"evaluator.memory": "diverse"}']

Without a run, one is trained with the preset's settings and a passive evaluator. Beside the table it counts how many policies
are either
predicted within 15 % of the range of returns or flagged, and how many intervals hold the true value.
"""

import argparse
import dataclasses
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

import evarl
from evarl.agents.perturbation import with_noise
from evarl.evaluation.assess import assess_policy
from evarl.evaluation.calibration import calibrated
from evarl.evaluation.inputs import AssessedPolicy
from evarl.evaluation.knowledge import judge
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from evarl.learning.perturbed import try_perturbed
from evarl.simulation.simulator import simulator_for

NAMES = ("right", "up", "left", "down")
SNAPSHOTS = (0, 25, 75, 150)
NOISE = (0.1, 0.3, 1.0, 3.0)
RANDOM = (0.25, 0.5, 0.75)
SWAPPED = (1, 0, 3, 2)
"""The actions when x and y are exchanged."""
OPPOSITE = (2, 3, 0, 1)
WITHIN = 0.15
"""Share of the range of returns by which a prediction may be wrong without a warning."""


@dataclass(frozen=True)
class Row:
    """What was said of one policy, and what is true."""

    name: str
    predicted: float
    low: float | None
    high: float | None
    p_value: float | None
    flagged: bool
    truth: float
    error: float
    """Standard error of the truth."""

    @property
    def covered(self) -> bool | None:
        """Whether the interval holds the truth, up to two standard errors of it; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low - 2 * self.error <= self.truth <= self.high + 2 * self.error

    def fine(self, reach: float) -> bool:
        """Whether the prediction is within `reach` of the truth, or the policy was flagged."""
        return self.flagged or abs(self.predicted - self.truth) <= reach


def train(out: Path, seed: int, further: dict[str, Any]) -> evarl.Run:
    """The navigation preset with a passive evaluator, and further settings."""
    settings = {"evaluator_mode": "colearned", "seed": seed} | further
    return evarl.train(evarl.with_settings(evarl.preset("navigation"), settings), out=out, quiet=True)


def snapshots(run: evarl.Run, seed: int, updates: tuple[int, ...]) -> list[Any]:
    """The parameters of a seed's policy after so many updates of ordinary training."""
    plain = dataclasses.replace(run.config, evaluator_mode="none", beta=0.0, seeds=1)
    learner = make_learner(plain)
    engine = CompiledEngine(learner, 1)
    state, done, found = engine.init([seed]), 0, []
    for last in updates:
        while done < last:
            count = min(last - done, 200)
            state, _ = engine.advance(state, done, count)
            done += count
        found.append(jax.tree.map(lambda leaf: np.asarray(leaf[0]), state.agent.policy))
    return found


def _constant(action, key, observation):
    return jnp.full(observation.shape[0], action), jnp.zeros(observation.shape[0])


def _mixed(act, share, key, observation):
    """Uniformly random actions with some probability."""
    own, chance, other = jax.random.split(key, 3)
    action, log_prob = act(own, observation)
    random = jax.random.randint(other, action.shape, 0, len(NAMES), action.dtype)
    return jnp.where(jax.random.uniform(chance, action.shape) < share, random, action), log_prob


def _renamed(act, table, swap, key, observation):
    """Another action for each, and x and y exchanged before if `swap`."""
    action, log_prob = act(key, jnp.where(swap, observation[:, ::-1], observation))
    return jnp.asarray(table, action.dtype)[action], log_prob


def _greedy(distribution, key, observation):
    return distribution(observation).mode(), jnp.zeros(observation.shape[0])


def odd_policies(run: evarl.Run, other: Any, early: list[Any]) -> dict[str, AssessedPolicy]:
    """Twenty policies by name. `other` are the parameters of another seed's final policy, `early` those of snapshots."""
    agent, final = run.learner.agent, run.policy_state()
    of = lambda parameters: Partial(agent.act, parameters)  # noqa: E731
    acts: dict[str, Any] = {f"always {NAMES[a]}": Partial(_constant, jnp.int32(a)) for a in range(4)}
    acts["uniformly random"] = Partial(_mixed, of(final), jnp.float32(1.0))
    keys = jax.random.split(jax.random.PRNGKey(7), len(NOISE))
    noisy = [with_noise(final, jnp.float32(size), key) for size, key in zip(NOISE, keys, strict=True)]
    acts |= {f"noise {size} in the parameters": of(one) for size, one in zip(NOISE, noisy, strict=True)}
    acts |= {f"{share:.0%} random actions": Partial(_mixed, of(final), jnp.float32(share)) for share in RANDOM}
    acts |= {f"after {n} updates": of(one) for n, one in zip(SNAPSHOTS, early, strict=True)}
    acts["another seed's policy"] = of(other)
    acts["mirrored at the diagonal"] = Partial(_renamed, of(final), jnp.asarray(SWAPPED), jnp.bool_(True))
    acts["opposite actions"] = Partial(_renamed, of(final), jnp.asarray(OPPOSITE), jnp.bool_(False))
    acts["greedy"] = Partial(_greedy, Partial(agent.distribution, final))
    return {name: AssessedPolicy(act) for name, act in acts.items()}


def ask(run: evarl.Run, policies: dict[str, AssessedPolicy], rollouts: int = 512) -> list[Row]:
    """What the run's evaluator says of some policies, beside the truth by Monte Carlo."""
    simulator, rows = simulator_for(run.world), []
    starts = simulator.start_states(jax.random.PRNGKey(1), 1)
    for name, policy in policies.items():
        found = assess_policy(run, policy, name)
        returns = simulator.returns(policy.act, starts, jax.random.PRNGKey(2), rollouts).discounted
        judged = found.judgement
        low, high = (None, None) if judged.interval is None else (judged.interval.low, judged.interval.high)
        error = float(returns.std(ddof=1) / rollouts**0.5)
        told = judged.p_value, judged.outside is not None
        rows.append(Row(name, float(found.mean or np.nan), low, high, *told, float(returns.mean()), error))
    return rows


def fresh_coverage(run: evarl.Run, policies: list[Any], count: int = 40) -> tuple[int, int]:
    """How many intervals hold the value, of `count` new perturbed versions of each of some policies; and of how many.

    The intervals are to hold for policies like those that calibrated them: perturbed versions of the final policy or, with a
    diverse memory, of all policies of the run.
    """
    fixed, learnt = run.learner.evaluability, calibrated(run, run.seeds[0], run.evaluator_state())
    assert fixed is not None
    many = evarl.with_settings(run.config, {"evaluator.perturbed": count, "evaluator.perturbed_environments": 48})
    more = dataclasses.replace(fixed, config=many)
    draw = jax.jit(
        lambda policy, key: try_perturbed(more, run.learner.simulator, run.learner.agent, policy, key).records
    )
    predict, held = jax.jit(jax.vmap(fixed.evaluator.predict, (None, 0, 0))), 0
    for index, policy in enumerate(policies):
        records = jax.device_get(draw(policy, jax.random.PRNGKey(100 + index)))
        predicted = np.asarray(predict(learnt.state, records.behaviour, records.observation[:, :1]))[:, 0]
        for i in range(count):
            own = jax.tree.map(lambda leaf, at=i: leaf[at], records.behaviour)
            interval = judge(learnt, own, float(predicted[i]), run.world.return_range()).interval
            assert interval is not None
            held += interval.low <= records.target[i, :48].mean() <= interval.high
    return held, count * len(policies)


def table(rows: list[Row]) -> str:
    """A Markdown table."""
    lines = ["| policy | predicted | 90 % interval | flagged (p) | truth |", "| --- | ---: | :---: | :---: | ---: |"]
    for row in rows:
        interval = "—" if row.low is None else f"{row.low:.2f} to {row.high:.2f}"
        p_value = "" if row.p_value is None else f" ({row.p_value:.3f})"
        flagged = ("yes" if row.flagged else "no") + p_value
        truth = f"{row.truth:.2f} ± {row.error:.2f}"
        lines.append(f"| {row.name} | {row.predicted:.2f} | {interval} | {flagged} | {truth} |")
    return "\n".join(lines)


def main() -> None:
    """Train, ask, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", type=json.loads, default={}, help="further settings of the run, as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = evarl.Run.load(given.run) if given.run else train(Path(folder) / "run", given.seed, given.settings)
        (other,) = snapshots(run, run.seeds[-1] + 1, (run.config.updates,))
        early = snapshots(run, run.seeds[0], SNAPSHOTS)
        rows = ask(run, odd_policies(run, other, early))
        fresh = fresh_coverage(run, [run.policy_state()], 200)
        own = ask(run, {"its own policy": AssessedPolicy(Partial(run.learner.agent.act, run.policy_state()))})
    low, high = run.world.return_range() or (0.0, 0.0)
    reach = WITHIN * (high - low)
    print(table([*own, *rows]))
    print(f"\nwithin {reach:.2f} ({WITHIN:.0%} of the range of returns) or flagged: ", end="")
    print(
        f"{sum(row.fine(reach) for row in rows)} of {len(rows)}; not: {[row.name for row in rows if not row.fine(reach)]}"
    )
    known = [row for row in rows if row.covered is not None]
    unflagged = [row for row in known if not row.flagged]
    print(f"intervals that hold the truth: {sum(bool(row.covered) for row in known)} of {len(known)}, ", end="")
    print(f"of those not flagged {sum(bool(row.covered) for row in unflagged)} of {len(unflagged)}")
    print(f"of {fresh[1]} new perturbed policies: {fresh[0]} ({fresh[0] / fresh[1]:.0%}), values by 48 episodes")
    print(f"its own policy: |predicted − truth| = {abs(own[0].predicted - own[0].truth):.3f}")


if __name__ == "__main__":
    main()
