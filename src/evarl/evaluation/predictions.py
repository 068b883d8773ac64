"""What the evaluators of a run say about its final policies, from their own assessments and from those of others."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from evarl.errors import FileError
from evarl.evaluation.predictors import BATCH, EVALUATOR, SHUFFLED, ZEROED
from evarl.evaluation.subjects import predictor, taker
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.runs.checks import not_fitted
from evarl.runs.run import Run
from evarl.worlds.world import Key

Predictions = dict[str, Float[np.ndarray, "J Q"]]
"""By predictor; J is 1 but for Ξ shuffled, which speaks once for every other policy."""


class Witness:
    """The evaluators of a run, and what each seed's final policy shows in one fresh assessment."""

    def __init__(self, run: Run, learnt: dict[int, LearntEvaluator], shown: dict[int, np.ndarray]):
        examiner = run.learner.examiner
        assert examiner is not None
        self.learnt, self.shown = learnt, shown
        self._predict = predictor(examiner.evaluator)
        self._updates = run.config.updates
        reasons = {seed: not_fitted(one, run.config, seed) for seed, one in learnt.items()}
        self.not_fitted = {seed: reason for seed, reason in reasons.items() if reason is not None}
        """By seed: why its evaluator has nothing to say."""
        self.shuffled_with: str | None
        remembered = any(len(one.remembered) for one in learnt.values())
        if len(learnt) > 1:
            self.shuffled_with = "remembered policies of other seeds" if remembered else "final policies of other seeds"
        else:
            self.shuffled_with = "older remembered policies of the same seed" if remembered else None

    @classmethod
    def of(
        cls, run: Run, seeds: Sequence[int], replicates: int | None, key: Key, say: Callable[[str], None]
    ) -> "Witness":
        """Call all seeds of the run, not only those that are asked about: the others supply what is shuffled in."""
        take, act = taker(run, replicates), run.learner.agent.act
        learnt, shown = {}, {}
        for seed in run.seeds:
            try:
                evaluator, policy = run.evaluator_state(seed), run.policy_state(seed)
            except FileError as error:
                if seed in seeds:
                    raise
                say(f"seed {seed} is left out of Ξ shuffled: {error}")
                continue
            learnt[seed] = evaluator
            seed_key = jax.random.fold_in(jax.random.fold_in(key, seed), 1)
            shown[seed] = take(Partial(act, policy), seed_key).mean(axis=1)
        return cls(run, learnt, shown)

    def predictions(self, seed: int, queries: Array | np.ndarray) -> Predictions:
        """What the evaluator of a seed says, with its Ξ and with others; nothing if it was not fitted."""
        learnt, own = self.learnt[seed], self.shown[seed]
        mean = np.full((1, len(queries)), float(learnt.batch_mean))
        if seed in self.not_fitted:
            return {BATCH: mean}
        # the mean that returns are standardised by, so that the network is shown zeros
        zeroed = np.broadcast_to(np.asarray(learnt.state.returns.mean, np.float64), own.shape)
        others = self._others(seed)
        said = self._predict(learnt.state, np.stack([own, zeroed, *others]), queries)
        found = {EVALUATOR: said[:1], ZEROED: said[1:2]}
        if others:
            found[SHUFFLED] = said[2:]
        return found | {BATCH: mean}

    def _others(self, seed: int) -> list[np.ndarray]:
        """Ξ of other policies."""
        rest = [other for other in self.learnt if other != seed]
        if not rest:
            return self._remembered(seed)[:-1]
        remembered = [returns for other in rest for returns in self._remembered(other)]
        return remembered or [self.shown[other] for other in rest]

    def _remembered(self, seed: int) -> list[np.ndarray]:
        """Oldest first; slots are used in turn, and some are empty after a short run."""
        slots = np.asarray(self.learnt[seed].remembered, np.float64)
        filled = min(self._updates, len(slots))
        first = self._updates % len(slots) if filled and self._updates >= len(slots) else 0
        return list(np.roll(slots[:filled], -first, axis=0))
