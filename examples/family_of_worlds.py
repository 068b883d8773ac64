# %% [markdown]
# # A family of worlds of your own
#
# A walker carries a load up a slope. How heavy the load is differs from site to site and decides how often the
# walker slides back, but nobody is told. In the test it stands on a scale: stepping on it (action 0) hurts in
# proportion to the load, and shows it.
#
# [The tutorial](../docs/tutorials/family-of-worlds.md) explains each line.

# %%
from dataclasses import dataclass

import evarl
import jax
import jax.numpy as jnp
from evarl.worlds import Box, Context, ContextParameter, Discrete, World


@dataclass(frozen=True)
class Slope(World):
    """Carry a hidden load from place 1 up to place 7; place 0 is a scale, where tests begin."""

    name: str = "slope"
    horizon: int = 30
    discount: float = 0.99
    observation_space: Box = Box((8,), 0.0, 1.0)
    action_space: Discrete = Discrete(2)
    parameters: tuple[ContextParameter, ...] = (ContextParameter("load", 0.5, 0.0, 1.0, "weight of the load"),)
    contexts: tuple[Context, ...] = ()

    def initial(self, key, context=None):
        return jnp.ones((), jnp.int32)

    def transition(self, key, place, action, context=None):
        load = 0.5 if context is None else context[0]
        slides = jax.random.uniform(key) < 0.45 * load
        up = jnp.where(slides, jnp.maximum(place - 1, 1), place + 1)
        stays_or_goes_back = jnp.where(place == 0, 0, jnp.maximum(place - 1, 1))
        hurts = (place == 0) & (action == 0)
        place = jnp.where(action == 1, up, stays_or_goes_back)
        return place, -1.0 - jnp.where(hurts, 2.0 * load, 0.0), place == 7

    def observation(self, place):
        return jax.nn.one_hot(place, 8)


evarl.register_world("slope", Slope)

# %% [markdown]
# The settings are those of the preset `crossing`, which was made for families, with another world, another test
# and a shorter run.

# %%
config = evarl.with_settings(
    evarl.preset("crossing"),
    {
        "world": "slope",
        "context": ["load=0:1"],
        "steps": 30,
        "updates": 300,
        "ramp": 50,
        "assessment.start_states": "0 0 0",
        "assessment.horizon": 3,
        "assessment.entropy_coefficient": 0.1,
        "evaluator.warmup": 50,
        "evaluator.final_steps": 1000,
    },
)

# %% [markdown]
# An ordinary policy with a passive evaluator, and an evaluable one.

# %%
runs = {
    "passive": evarl.train(config, evaluator_mode="colearned", quiet=True),
    "evaluable": evarl.train(config, beta=1.0, quiet=True),
}
for name, run in runs.items():
    found = evarl.evaluate(run, sites=64, rollouts=64)
    error = found.row("evaluator", "site").mae.mean
    print(f"{name:9} error {error:5.2f}, return {found.discounted.mean:6.2f}")

# %% [markdown]
# Both walk up equally well. In the test the ordinary policy walks up too, which looks the same under every load.
# The evaluable one stands on the scale.

# %%
for name, run in runs.items():
    for load in (0.1, 0.9):
        found = evarl.assess(run, context={"load": load}, interval=False)
        print(f"{name:9} load {load}: test {found.mean_returns.round(2)}, ", end="")
        print(f"predicted {found.mean:6.2f}, true {found.truth.value:6.2f}")
