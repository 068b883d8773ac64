# %% [markdown]
# # A new kind of behaviour Ξ
#
# What the evaluator is shown of a policy need not be returns. Here it is shown *where* the policy is at the end of
# its test, and how undecided it is at the beginning. [The tutorial](../docs/tutorials/new-behaviour.md) explains
# the two methods.

# %%
import evarl
import jax.numpy as jnp


class Whereabouts:
    """For each start state, the last place of the scenario and the entropy of the first action."""

    def rolled_out(self, rollout, rewards_to_go):
        last = jnp.sum(rollout.alive, axis=0) - 1  # [k, R] index of the last step that was taken
        place = jnp.take_along_axis(rollout.observation, last[None, ..., None], axis=0)  # [1, k, R, 2]
        return jnp.broadcast_to(place, rollout.observation.shape)  # no sum over steps: the same in all rows

    def pathwise(self, rollout, policy):
        return policy(rollout.observation[0, :, 0]).entropy()[:, None]  # [k, 1]


evarl.register_behaviour("whereabouts", Whereabouts)

# %% [markdown]
# By its name it can be used like any other kind, alone or combined with others.

# %%
settings = {"assessment.behaviour": "returns+whereabouts", "evaluator.warmup": 50}
run = evarl.train(evarl.with_settings(evarl.preset("navigation"), settings), beta=0.05, updates=200, quiet=True)

# %% [markdown]
# An assessment then has four numbers for each of the four start states: the return, a place in the plane and an
# entropy.

# %%
found = evarl.assess(run, interval=False)
for row in found.behaviour:
    print("  ".join(f"{number:7.2f}" for number in row))
print(f"predicted value {found.mean:.2f}")

# %% [markdown]
# Does the evaluator read them? Two controls tell: it is shown the average behaviour (zeroed), or that of other
# policies (shuffled). In a single world like this one there is little to read: the evaluator was fitted to returns
# of this very policy, and knows its values anyway. In [a family of worlds](../docs/tutorials/family-of-worlds.md)
# that is different.

# %%
evaluation = evarl.evaluate(run, states=16, rollouts=32)
for row in evaluation.rows:
    if row.queries == "start" and row.predictor.startswith(("evaluator", "critic")):
        print(f"{row.predictor:22} mean absolute error {row.mae.mean:.2f}")
