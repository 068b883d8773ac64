"""The evidence of a test: returns and predictions as plain lists of numbers.

It is determined by the protocol and a key, which is split by purpose: 0 assessment, 1 deployment rollouts, 2 fresh start states,
3 second rollouts from the same states, 4 whether there are several start states, 5 calibration policies, 6 contexts of
calibration sites, 7 tests there, 8 rollouts there, 9 contexts of further sites that are drawn.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from evarl import bounds
from evarl.certificates.certified_policy import CertifiedPolicy, Predict
from evarl.certificates.conclusions import Evidence, decide
from evarl.certificates.protocol import Protocol
from evarl.errors import InputError
from evarl.simulation.simulator import simulator_for
from evarl.worlds.contexts import draw_contexts, parse_site
from evarl.worlds.world import Key

Notify = Callable[[str], None]

STARTS = 256
"""Number of start states over which a prediction of J is averaged, and that show whether there are several at all."""
AT_ONCE = 4096
"""Episodes and tests on calibration sites that are made in one program."""


@dataclass(frozen=True)
class PolicyTest:
    """A protocol, the policies it is about, and the key of its random numbers."""

    protocol: Protocol
    policy: CertifiedPolicy
    calibration: Sequence[CertifiedPolicy] = ()
    """The calibration policies, in the order of the protocol."""
    key: ArrayLike | None = None
    """A key that a verifier has drawn; the protocol's own unless given."""
    measured: Evidence | None = None
    """For a site: the evidence of its calibration, if that is known already."""

    def purpose(self, number: int) -> jax.Array:
        """The key for one purpose."""
        return jax.random.fold_in(jnp.asarray(self.protocol.key() if self.key is None else self.key), number)

    @property
    def calibrating(self) -> "PolicyTest":
        """The calibration of a test of a site."""
        return replace(self, protocol=self.protocol.calibrating)

    @property
    def assessment_key(self) -> jax.Array:
        """The key of the assessment, always the protocol's own: fresh rollouts test the same V̂."""
        return jax.random.fold_in(jnp.asarray(self.protocol.key()), 0)


def returns_and_predictions(test: PolicyTest, notify: Notify, twice: bool = False) -> Evidence:
    """Returns and predictions at their start states; with `twice` also second returns from the same states."""
    protocol, policy = test.protocol, test.policy
    predict = policy.assessed(test.assessment_key)
    found: Evidence = {"returns": [], "values": []}
    if twice:
        if not policy.world.can_restart:
            raise InputError(
                f"claim: {protocol.claim} requires two independent rollouts from one state, and {protocol.world} can only be "
                "reset with the same random numbers; must be a world in JAX"
            )
        found["others"] = []
    batches = policy.rollouts(test.purpose(1), protocol.batch)
    for number, (returns, starts) in enumerate(islice(batches, -(-protocol.rollouts // protocol.batch))):
        found["returns"] += returns.tolist()
        found["values"] += predict(starts.observation).tolist()
        if twice:
            found["others"] += policy.deploy(starts, jax.random.fold_in(test.purpose(3), number)).tolist()
        notify(f"{min(len(found['returns']), protocol.rollouts)} of {protocol.rollouts} rollouts")
    return {name: column[: protocol.rollouts] for name, column in found.items()}


def deployment_returns(test: PolicyTest, notify: Notify) -> Evidence:
    """Returns, and for the control variate predictions at their start states and means at fresh start states."""
    protocol, policy = test.protocol, test.policy
    predict = policy.assessed(test.assessment_key) if _controlled(test) else None
    found: Evidence = {name: [] for name in (["returns"] if predict is None else ["returns", "values", "fresh"])}

    def rows() -> Iterator[tuple[float, ...]]:
        for number, (returns, starts) in enumerate(policy.rollouts(test.purpose(1), protocol.batch)):
            columns = [returns]
            if predict is not None:
                fresh_key = jax.random.fold_in(test.purpose(2), number)
                fresh = simulator_for(policy.world).start_states(fresh_key, protocol.batch * protocol.fresh)
                predicted = predict(fresh.observation).clip(*protocol.range)
                columns += [predict(starts.observation), predicted.reshape(protocol.batch, -1).mean(axis=1)]
            notify(f"{min((number + 1) * protocol.batch, protocol.rollouts)} of at most {protocol.rollouts} rollouts")
            for row in zip(*(column.tolist() for column in columns), strict=True):
                for name, value in zip(found, row, strict=True):
                    found[name].append(value)
                yield row

    taken = islice(rows(), protocol.rollouts)
    if protocol.sequential:
        decide(protocol, taken, controlled=predict is not None)  # takes no more rollouts than it needs
    else:
        deque(taken, maxlen=0)
    return found


def _controlled(test: PolicyTest) -> bool:
    """Whether the evaluator is used as a control variate.

    From a single start state every prediction is the same and nothing is gained. The number of start states is found from
    states at which no rollout starts, so this is not a choice that depends on the returns.
    """
    policy = test.policy
    several = simulator_for(policy.world).start_states(test.purpose(4), STARTS).distinct > 1
    return policy.has_evaluator and policy.not_fitted is None and several and not test.protocol.two_valued


def calibration_bounds(test: PolicyTest, notify: Notify) -> Evidence:
    """Lower bounds and predictions of J of the calibration policies, and the prediction for this policy.

    Predictions are part of the sample here, so that the assessments have the key of the test.
    """
    protocol = test.protocol
    assert protocol.value_error is not None
    lower, predictions = [], []
    for number, other in enumerate(test.calibration):
        assessment_key, rollout_key = jax.random.split(jax.random.fold_in(test.purpose(5), number))
        predictions.append(_predicted_return(test, other, other.assessed(assessment_key)))
        batches = islice(other.rollouts(rollout_key, protocol.batch), -(-protocol.rollouts // protocol.batch))
        returns = np.concatenate([batch.returns for batch in batches])[: protocol.rollouts]
        lower.append(bounds.betting_lower_bound(returns, *protocol.range, protocol.value_error))
        notify(f"{number + 1} of {len(test.calibration)} calibration policies")
    own = _predicted_return(test, test.policy, test.policy.assessed(test.purpose(0)))
    return {"bounds": lower, "predictions": predictions, "prediction": [own]}


def _predicted_return(test: PolicyTest, policy: CertifiedPolicy, predict: Predict) -> float:
    """Ĵ(Ξ): the evaluator's predictions, clipped into the range of returns and averaged over start states."""
    starts = simulator_for(policy.world).start_states(test.purpose(4), STARTS)
    return float(predict(starts.queries).clip(*test.protocol.range).mean())


def site_evidence(test: PolicyTest, notify: Notify) -> Evidence:
    """Predictions and measurements on the calibration sites and, for a test of a site, the prediction there and its context.

    Both predictions are the same function of a test. The calibration follows from its own protocol, the same for all sites;
    so does the context of a site that is drawn, so that fresh rollouts are about the same site.
    """
    protocol, calibration = test.protocol, test.calibrating
    queries = simulator_for(test.policy.world).start_states(calibration.purpose(4), STARTS).queries
    found = _calibration_sites(calibration, queries, notify) if test.measured is None else dict(test.measured)
    if protocol.site:
        context = site_context(test)
        found["prediction"] = _predicted(test, context[None], test.purpose(0), queries).tolist()
        found["context"] = np.asarray(context, np.float64).tolist()
    return found


def _predicted(
    test: PolicyTest, contexts: Float[Array, "C P"], key: Key, queries: Array | np.ndarray
) -> Float[np.ndarray, " C"]:
    """What the margin is added to on each of C sites, by the predictor of the protocol."""
    assert test.protocol.predictor is not None
    return test.policy.predicted_at(contexts, key, queries, test.protocol.predictor)


def site_context(test: PolicyTest) -> jax.Array:
    """The context [P] of the site that is tested."""
    protocol, world = test.protocol, test.policy.world
    if protocol.drawn:
        key = jax.random.fold_in(jnp.asarray(protocol.calibrating.key()), 9)
        return draw_contexts(world.contexts, jax.random.fold_in(key, protocol.drawn), 1)[0]
    return jnp.asarray(parse_site(protocol.site, world.contexts, world.name))


def _calibration_sites(test: PolicyTest, queries: jax.Array | np.ndarray, notify: Notify) -> Evidence:
    """On each calibration site the prediction, and the mean return or, for site-value, a lower bound on the expected return."""
    protocol, policy = test.protocol, test.policy
    contexts = draw_contexts(policy.world.contexts, test.purpose(6), protocol.sites)
    assert policy.run.assessment is not None
    lanes = max(protocol.rollouts, policy.run.assessment.scenarios * policy.run.config.assessment.replicates)
    group = min(protocol.sites, max(1, AT_ONCE // lanes))
    predictions, returns = [], []
    for number, first in enumerate(range(0, protocol.sites, group)):
        chosen = np.minimum(np.arange(first, first + group), protocol.sites - 1)  # padded, for one program
        here = min(group, protocol.sites - first)
        test_key, walk_key = (jax.random.fold_in(test.purpose(purpose), number) for purpose in (7, 8))
        predictions.append(_predicted(test, contexts[chosen], test_key, queries)[:here])
        returns.append(policy.returns_at(contexts[chosen], walk_key, protocol.rollouts)[:here])
        notify(f"{first + here} of {protocol.sites} calibration sites, {protocol.rollouts} rollouts each")
    predicted, rows = np.concatenate(predictions), np.concatenate(returns)
    if protocol.value_error is None:
        return {"predictions": predicted.tolist(), "returns": rows.mean(axis=1).tolist()}
    lower = [bounds.betting_lower_bound(row, *protocol.range, protocol.value_error) for row in rows]
    return {"predictions": predicted.tolist(), "bounds": lower}
