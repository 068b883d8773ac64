"""What is rolled out for a claim. The protocol decides all of it; what comes out is plain lists of numbers.

Keys: 0 assessment, 1 deployment rollouts, 2 fresh start states, 3 second rollouts (C4), 4 which start states there are,
5 calibration policies (C5).
"""

from collections.abc import Callable, Iterator
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np

from evarl import certify
from evarl.certificates.conclusions import decide
from evarl.certificates.protocol import Protocol
from evarl.certificates.subject import Predict, Subject
from evarl.errors import InputError
from evarl.report.subjects import draw_starts
from evarl.runs.run import Run
from evarl.worlds.world import HostWorld

Evidence = dict[str, list[float]]
"""By name: returns, values (V̂ at their start states), and more by claim."""

Say = Callable[[str], None]

STARTS = 256
"""Start states over which a prediction of J is averaged, and from which it is seen whether there are several at all."""


def gather(protocol: Protocol, subject: Subject, say: Say) -> Evidence:
    """Roll out what the protocol asks for."""
    if protocol.claim == "C5":
        return _from_policies(protocol, subject, say)
    if protocol.claim == "J":
        return _mean_return(protocol, subject, say)
    predict = subject.assessed(_key(protocol, 0))
    found: Evidence = {"returns": [], "values": []}
    if protocol.claim == "C4":
        if isinstance(subject.world, HostWorld):
            raise InputError(
                f"claim: C4 wants two independent rollouts from one state, and {protocol.world} can only be begun again "
                "with the same dice; want a world in JAX"
            )
        found["others"] = []
    batches = subject.rollouts(_key(protocol, 1), protocol.batch)
    for number, (returns, starts) in enumerate(islice(batches, -(-protocol.rollouts // protocol.batch))):
        found["returns"] += returns.tolist()
        found["values"] += predict(starts.observation).tolist()
        if "others" in found:
            found["others"] += subject.deploy(starts, jax.random.fold_in(_key(protocol, 3), number)).tolist()
        say(f"{min(len(found['returns']), protocol.rollouts)} of {protocol.rollouts} rollouts")
    return {name: column[: protocol.rollouts] for name, column in found.items()}


def predicted_return(protocol: Protocol, subject: Subject, predict: Predict) -> float:
    """Ĵ(Ξ): the evaluator's predictions, clipped into what is possible and averaged over start states."""
    starts = draw_starts(subject.world, _key(protocol, 4), STARTS)
    return float(predict(starts.shown).clip(*protocol.range).mean())


def _mean_return(protocol: Protocol, subject: Subject, say: Say) -> Evidence:
    """Returns, and for the control variate predictions where rollouts began and at fresh start states."""
    kinds = draw_starts(subject.world, _key(protocol, 4), STARTS).distinct
    # From a single start state every prediction is the same: there is nothing to control for, and no stake to divide.
    # This is seen on start states that no rollout begins at, so it is no choice made after the fact.
    predict = subject.assessed(_key(protocol, 0)) if subject.has_evaluator and kinds > 1 else None
    found: Evidence = {name: [] for name in (["returns"] if predict is None else ["returns", "values", "fresh"])}

    def rows() -> Iterator[tuple[float, ...]]:
        for number, (returns, starts) in enumerate(subject.rollouts(_key(protocol, 1), protocol.batch)):
            columns = [returns]
            if predict is not None:
                fresh_key = jax.random.fold_in(_key(protocol, 2), number)
                fresh = draw_starts(subject.world, fresh_key, protocol.batch * protocol.fresh)
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


def _from_policies(protocol: Protocol, subject: Subject, say: Say) -> Evidence:
    """Lower bounds and predictions of other policies, and the prediction of this one."""
    assert protocol.value_error is not None
    bounds, predictions = [], []
    runs: dict[str, Run] = {}
    for number, one in enumerate(protocol.calibration):
        key = jax.random.fold_in(_key(protocol, 5), number)
        keys = jax.random.split(key)
        if one.run not in runs:
            runs[one.run] = Run.load(subject.run.path / one.run)
        other = Subject(runs[one.run], one.seed)
        predictions.append(predicted_return(protocol, other, other.assessed(keys[0])))
        batches = islice(other.rollouts(keys[1], protocol.batch), -(-protocol.rollouts // protocol.batch))
        returns = np.concatenate([batch.returns for batch in batches])[: protocol.rollouts]
        bounds.append(certify.betting_lower_bound(returns, *protocol.range, protocol.value_error))
        say(f"{number + 1} of {len(protocol.calibration)} calibration policies")
    own = predicted_return(protocol, subject, subject.assessed(_key(protocol, 0)))
    return {"bounds": bounds, "predictions": predictions, "prediction": [own]}


def _key(protocol: Protocol, purpose: int) -> jax.Array:
    return jax.random.fold_in(jnp.asarray(protocol.key()), purpose)
