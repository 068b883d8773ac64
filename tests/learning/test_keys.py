"""Every random key is used once: no key is consumed twice, and no two derived keys are equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.assessment import Assessment
from evarl.learning import make_learner
from evarl.worlds import make_world

SAMPLERS = ("bits", "uniform", "normal", "gumbel", "randint", "choice", "permutation", "categorical", "bernoulli")


class Record:
    """Calls of `jax.random`, with the values of their keys; in compiled programs too, which hand them over as they run."""

    def __init__(self, patch):
        self.consumed, self.folded, self.derived = [], [], []
        for name in SAMPLERS:
            patch.setattr(jax.random, name, self.watched(getattr(jax.random, name), self.consumed))
        patch.setattr(jax.random, "split", self.watched(jax.random.split, self.consumed, self.derived))
        patch.setattr(jax.random, "fold_in", self.watched(jax.random.fold_in, self.folded, self.derived))

    def watched(self, function, used, derived=None):
        def call(key, *arguments, **options):
            made = function(key, *arguments, **options)
            tell(used, key)
            if derived is not None:
                tell(derived, made)
            return made

        return call


def tell(kept, key):
    """Keep the values of a key, or of all keys in an array or that are vmapped over; each is a tuple of two numbers."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    jax.debug.callback(lambda key: kept.extend(map(tuple, np.asarray(key).reshape(-1, 2).tolist())), key)


def repeated(values):
    return len(values) - len(set(values))


@pytest.mark.parametrize(
    ("algorithm", "context"),
    [
        pytest.param(
            "ppo", ("slip=0:0.5", "wind=-0.1:0.1"), marks=pytest.mark.slow
        ),  # every use of a key is in this one
        pytest.param("ppo", (), marks=pytest.mark.slow),
        ("a2c", ()),
    ],
    ids=str,
)
def test_every_key_of_an_update_is_used_once(algorithm, context, monkeypatch):
    settings = {"agent.algorithm": algorithm, "agent.hidden_sizes": [4], "beta": 0.1}
    settings |= {"agent.ppo.minibatches": 2, "agent.ppo.epochs": 2}
    small = {
        "environments": 2,
        "rollouts_per_start": 1,
        "steps": 4,
        "horizon": 2,
        "evaluator.warmup": 0,
        "evaluator.initial_steps": 2,
    }
    memory = {"evaluator.transitions": 5, "evaluator.policies": 2, "assessment.replicates": 2}
    config = evarl.with_settings(
        evarl.preset("navigation"), settings | small | memory | {"context": context}
    ).resolved()
    world = make_world("navigation/open-field", context=context)
    learner = make_learner(config, Assessment(world, np.array([[0.2, 0.2], [0.8, 0.8]], np.float32), 2))
    record = Record(monkeypatch)
    jax.clear_caches()  # what was traced before tells nothing
    try:
        state = jax.jit(learner.init)(jax.random.PRNGKey(3))
        jax.block_until_ready(jax.jit(learner.update)(state, jnp.int32(0)))
        jax.effects_barrier()
    finally:
        jax.clear_caches()  # and what was traced now would still tell
    assert len(record.consumed) > 20
    assert repeated(record.consumed) == 0, "no key is split, or sampled with, twice"
    assert repeated(record.derived) == 0, "no two keys that were derived are equal"
    assert not set(record.consumed) & set(record.folded), "a key is either used or folded, not both"


def test_the_check_sees_keys_that_are_used_twice(monkeypatch):
    record = Record(monkeypatch)
    key = jax.random.PRNGKey(0)
    first, _ = jax.random.split(key)
    assert repeated(record.derived) == 0
    jax.random.fold_in(key, 1)
    assert repeated(record.derived) == 1, "the second half of a split is the key folded with 1"
    jax.random.normal(first)
    jax.random.uniform(first)
    assert repeated(record.consumed) == 1
    jax.jit(lambda key: jax.lax.scan(lambda x, _: (x + jax.random.normal(key), None), 0.0, length=3))(key)
    assert repeated(record.consumed) == 4, "in a compiled loop, too"
    jax.jit(jax.vmap(lambda key: jax.random.uniform(key)))(jnp.stack([key, first]))
    assert repeated(record.consumed) == 6
