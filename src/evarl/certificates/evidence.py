"""The evidence of a test: what is rolled out for a claim, as plain lists of numbers.

The protocol and a key decide all of it. The key is split by purpose: 0 assessment, 1 deployment rollouts, 2 fresh start states,
3 second rollouts (C4), 4 which start states there are, 5 calibration policies (C5).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from evarl import bounds
from evarl.certificates.conclusions import decide
from evarl.certificates.protocol import Protocol
from evarl.certificates.subject import Predict, Subject
from evarl.errors import InputError
from evarl.simulation.simulator import simulator_for

Evidence = dict[str, list[float]]
"""By name: returns, values (V̂ at their start states), and more by claim."""

Say = Callable[[str], None]

STARTS = 256
"""Start states over which a prediction of J is averaged, and from which it is seen whether there are several at all."""


@dataclass(frozen=True)
class PolicyTest:
    """A protocol with the policies it is about, and the key of its random numbers."""

    protocol: Protocol
    subject: Subject
    key: ArrayLike
    """The protocol's own key, or one that a verifier has drawn."""
    calibration: Sequence[Subject] = ()
    """Of C5, in the order of the protocol."""

    def purpose(self, number: int) -> jax.Array:
        """The key for one purpose.

        The assessment is always the protocol's: fresh rollouts test the same V̂. In C5 predictions are part of the sample.
        """
        own = number == 0 and self.protocol.claim != "C5"
        return jax.random.fold_in(jnp.asarray(self.protocol.key() if own else self.key), number)


def gather(test: PolicyTest, say: Say) -> Evidence:
    """Roll out what the protocol asks for."""
    make = {"C5": _from_policies, "J": _mean_return}.get(test.protocol.claim, _with_predictions)
    found = make(test, say)
    for name, column in found.items():
        if not np.isfinite(column).all():
            raise InputError(f"{test.subject.run.path}: {name} are not all finite numbers; nothing can be certified")
    return found


def _with_predictions(test: PolicyTest, say: Say) -> Evidence:
    """Returns and predictions where they began; for C4 second returns from the same states."""
    protocol, subject = test.protocol, test.subject
    predict = subject.assessed(test.purpose(0))
    found: Evidence = {"returns": [], "values": []}
    if protocol.claim == "C4":
        if not subject.world.can_restart:
            raise InputError(
                f"claim: C4 wants two independent rollouts from one state, and {protocol.world} can only be begun again "
                "with the same dice; want a world in JAX"
            )
        found["others"] = []
    batches = subject.rollouts(test.purpose(1), protocol.batch)
    for number, (returns, starts) in enumerate(islice(batches, -(-protocol.rollouts // protocol.batch))):
        found["returns"] += returns.tolist()
        found["values"] += predict(starts.observation).tolist()
        if "others" in found:
            found["others"] += subject.deploy(starts, jax.random.fold_in(test.purpose(3), number)).tolist()
        say(f"{min(len(found['returns']), protocol.rollouts)} of {protocol.rollouts} rollouts")
    return {name: column[: protocol.rollouts] for name, column in found.items()}


def _predicted_return(test: PolicyTest, subject: Subject, predict: Predict) -> float:
    """Ĵ(Ξ): the evaluator's predictions, clipped into what is possible and averaged over start states."""
    starts = simulator_for(subject.world).start_states(test.purpose(4), STARTS)
    return float(predict(starts.queries).clip(*test.protocol.range).mean())


def _mean_return(test: PolicyTest, say: Say) -> Evidence:
    """Returns, and for the control variate predictions where rollouts began and at fresh start states."""
    protocol, subject = test.protocol, test.subject
    kinds = simulator_for(subject.world).start_states(test.purpose(4), STARTS).distinct
    # From a single start state every prediction is the same: there is nothing to control for, and no stake to divide.
    # This is seen on start states that no rollout begins at, so it is no choice made after the fact.
    usable = subject.has_evaluator and subject.not_fitted is None and kinds > 1 and not protocol.two_valued
    predict = subject.assessed(test.purpose(0)) if usable else None
    found: Evidence = {name: [] for name in (["returns"] if predict is None else ["returns", "values", "fresh"])}

    def rows() -> Iterator[tuple[float, ...]]:
        for number, (returns, starts) in enumerate(subject.rollouts(test.purpose(1), protocol.batch)):
            columns = [returns]
            if predict is not None:
                fresh_key = jax.random.fold_in(test.purpose(2), number)
                fresh = simulator_for(subject.world).start_states(fresh_key, protocol.batch * protocol.fresh)
                said = predict(fresh.observation).clip(*protocol.range)
                columns += [predict(starts.observation), said.reshape(protocol.batch, -1).mean(axis=1)]
            say(f"{min((number + 1) * protocol.batch, protocol.rollouts)} of at most {protocol.rollouts} rollouts")
            yield from zip(*(column.tolist() for column in columns), strict=True)

    def kept() -> Iterator[tuple[float, ...]]:
        for row in islice(rows(), protocol.rollouts):
            for name, number in zip(found, row, strict=True):
                found[name].append(number)
            yield row

    if protocol.sequential:
        decide(protocol, kept(), controlled=predict is not None)  # takes no more rollouts than it needs
    else:
        for _ in kept():
            pass
    return found


def _from_policies(test: PolicyTest, say: Say) -> Evidence:
    """Lower bounds and predictions of other policies, and the prediction of this one."""
    protocol = test.protocol
    assert protocol.value_error is not None
    lower, predictions = [], []
    for number, other in enumerate(test.calibration):
        show_key, walk_key = jax.random.split(jax.random.fold_in(test.purpose(5), number))
        predictions.append(_predicted_return(test, other, other.assessed(show_key)))
        batches = islice(other.rollouts(walk_key, protocol.batch), -(-protocol.rollouts // protocol.batch))
        returns = np.concatenate([batch.returns for batch in batches])[: protocol.rollouts]
        lower.append(bounds.betting_lower_bound(returns, *protocol.range, protocol.value_error))
        say(f"{number + 1} of {len(test.calibration)} calibration policies")
    own = _predicted_return(test, test.subject, test.subject.assessed(test.purpose(0)))
    return {"bounds": lower, "predictions": predictions, "prediction": [own]}
