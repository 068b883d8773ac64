"""The policy that a certificate is about: its files, its rollouts and its evaluator's predictions."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from evarl.certificates import hashes
from evarl.certificates.names import PredictorName
from evarl.certificates.protocol import policy_name
from evarl.errors import FileError, InputError
from evarl.evaluation.inputs import outside_policy
from evarl.evaluation.predictions import BehaviourPredictor
from evarl.runs.assessments import ASSESSMENT
from evarl.runs.checks import not_fitted
from evarl.runs.outside import OutsideRun, is_outside
from evarl.runs.run import Run
from evarl.simulation.episodes import StartStates
from evarl.simulation.rollouts import Act
from evarl.simulation.simulator import simulator_for
from evarl.worlds.world import AnyWorld, Key

Predict = Callable[[object], Float[np.ndarray, " Q"]]
"""V̂ at observations [Q, ...], from one assessment of the policy."""


def file_names(seed: int) -> tuple[str, ...]:
    """Files of a run that determine a policy and its prediction; the last two where there is an evaluator."""
    return ("config.json", policy_name(seed), ASSESSMENT, f"evaluator/seed-{seed}.safetensors")


class Rollouts(NamedTuple):
    """Whole episodes, in the order in which they were started."""

    returns: Float[np.ndarray, " n"]
    """Discounted returns."""
    starts: StartStates


@dataclass(frozen=True)
class CertifiedPolicy:
    """The final policy of one seed of a run."""

    run: Run
    seed: int

    @property
    def world(self) -> AnyWorld:
        """The world in which it is deployed."""
        return self.run.world

    @property
    def has_evaluator(self) -> bool:
        """Whether it was trained with an evaluator."""
        return self.run.assessment is not None

    @functools.cached_property
    def act(self) -> Act:
        """The policy as a function from key and observations to actions."""
        if isinstance(self.run, OutsideRun):
            return Partial(self.run.acting.act)
        return Partial(self.run.learner.agent.act, self.run.policy_state(self.seed))

    def check(self) -> None:
        """Raise FileError or InputError if the policy cannot be loaded, or is not the one of its run."""
        if isinstance(self.run, OutsideRun):
            self.run.checked()
        else:
            self.run.policy_state(self.seed)

    def files(self) -> dict[str, str]:
        """SHA-256 of the files that determine the policy and its prediction, by name within the run."""
        names = file_names(self.seed)[: None if self.has_evaluator else 2]
        for name in names:
            if not (self.run.path / name).exists():
                raise FileError(f"{self.run.path}: has no {name}; finish the run with --resume (in Python resume=True)")
        return {name: hashes.of_file(self.run.path / name) for name in names}

    def assessed(self, key: Key, other: OutsideRun | None = None) -> Predict:
        """The evaluator's predictions after one assessment of the policy, or of another one of an outside directory."""
        if not self.has_evaluator:
            raise InputError(
                f"{self.run.path}: has no evaluator; only mean-return can be certified, or train with --beta"
            )
        predictor, state = _predictor(self.run), self.run.evaluator_state(self.seed).state
        if other is None:
            return functools.partial(predictor.predict, state, predictor.assess_seed(self.seed, key).behaviour)
        policy = outside_policy(other.outside, self.world)
        with policy.errors():
            return functools.partial(
                predictor.predict, state, predictor.assess(policy, key, None, state.probed).behaviour
            )

    @property
    def has_lower_quantile(self) -> bool:
        """Whether its evaluator also predicts a lower quantile of the value."""
        return self.has_evaluator and self.run.evaluator_state(self.seed).state.lower is not None

    def check_predictor(self, name: PredictorName) -> None:
        """Refuse a predictor that the evaluator does not have."""
        if name == "quantile" and not self.has_lower_quantile:
            raise InputError(
                f"predictor: {name} is not allowed; the evaluator of {self.run.path} predicts no lower quantile, train with "
                "--evaluator.lower-quantile 0.1"
            )

    def predicted_at(
        self, contexts: Float[Array, "C P"], key: Key, queries: Array | np.ndarray, name: PredictorName = "value"
    ) -> Float[np.ndarray, " C"]:
        """V̂(Ξ) or q̂(Ξ) on each of C sites, from one assessment there: the mean of the predictions at the queries [Q, ...]."""
        predictor, state = _predictor(self.run), self.run.evaluator_state(self.seed).state
        behaviours = predictor.assess_seed(self.seed, key, contexts).behaviour
        predict = predictor.predict_lower if name == "quantile" else predictor.predict_each
        return predict(state, behaviours, queries).mean(axis=1)

    def returns_at(self, contexts: Float[Array, "C P"], key: Key, episodes: int) -> Float[np.ndarray, "C m"]:
        """Discounted returns of m whole episodes on each of C sites."""
        start_key, walk_key = jax.random.split(key)
        each, simulator = jnp.repeat(contexts, episodes, axis=0), simulator_for(self.world)
        starts = simulator.start_states(start_key, len(each), each)
        return simulator.returns(self.act, starts, walk_key, 1).discounted.reshape(len(contexts), episodes)

    @functools.cached_property
    def not_fitted(self) -> str | None:
        """The reason why the evaluator was not fitted; None if it was."""
        return not_fitted(self.run.evaluator_state(self.seed), self.run.config, self.seed)

    def deploy(self, starts: StartStates, key: Key) -> Float[np.ndarray, " n"]:
        """Discounted returns of whole episodes from start states."""
        with self.run.acting.errors() if isinstance(self.run, OutsideRun) else contextlib.nullcontext():
            return simulator_for(self.world).episode_returns(self.act, starts, key).discounted

    def rollouts(self, key: Key, batch: int) -> Iterator[Rollouts]:
        """An endless iterator over batches of rollouts; the number of batches that are used does not change any of them."""
        number = 0
        while True:
            start_key, walk_key = jax.random.split(jax.random.fold_in(key, number))
            starts = simulator_for(self.world).start_states(start_key, batch)
            yield Rollouts(self.deploy(starts, walk_key), starts)
            number += 1


@functools.lru_cache(maxsize=8)
def _predictor(run: Run) -> BehaviourPredictor:
    """The assessment and the predictions, compiled once for all seeds of a run."""
    return BehaviourPredictor(run)


def open_policy(run: Run | str | Path, seed: int | None) -> CertifiedPolicy:
    """The final policy of a seed of a run, by default of its first."""
    if jax.config.read("jax_enable_x64"):
        raise InputError("jax_enable_x64: is on, but policies are stored and tested in 32 bits; unset JAX_ENABLE_X64")
    run = run if isinstance(run, Run) else Run.load(run)
    if seed is not None and seed not in run.seeds:
        raise InputError(f"seed: {seed} is not one of this run's seeds {run.seeds[0]} to {run.seeds[-1]}")
    seed = run.seeds[0] if seed is None else seed
    if not isinstance(run, OutsideRun) and is_outside(run, seed):
        raise InputError(
            f"{run.path}: is about an outside policy, and files do not decide what is executed; give the policy, with "
            "--policy-sb3 or --policy-import, in Python as an OutsideRun or Reliance(policy=…)"
        )
    return CertifiedPolicy(run, seed)
