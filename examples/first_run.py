# %% [markdown]
# # First run
#
# Train an evaluable policy, test it on two sites, and look at what was learnt. It takes half a minute on a laptop.
#
# The world is a river with a bridge. On some sites the bridge holds with probability 0.15, on others with 0.9;
# neither the policy nor the evaluator is told which. The test begins beside the bridge, on the goal's side.

# %%
from pathlib import Path

import evarl

run = evarl.train("crossing", beta=1.0, updates=600)
print(f"return {run.summary['return']:.2f}, files in {run.path}")

# %% [markdown]
# The policy takes its test on each site once: six steps from four start states. From the four returns the
# evaluator predicts what the policy will be worth there. The true value is exact in this world.

# %%
sites = {bridge: evarl.assess(run, context={"bridge": bridge}, interval=False) for bridge in (0.15, 0.9)}
for bridge, found in sites.items():
    print(f"bridge holds {bridge:4.0%}: returns in the test {found.mean_returns.round(1)}")
    print(f"                    predicted {found.mean:6.2f}, true {found.truth.value:6.2f}")

# %% [markdown]
# One test can be lucky. Over many sites, the error is compared with that of predictors which do not see the test.

# %%
evaluation = evarl.evaluate(run, sites=64)
for row in evaluation.rows:
    if row.predictor in ("evaluator", "evaluator, Ξ shuffled", "mean over sites"):
        print(f"{row.predictor:24} mean absolute error {row.mae.mean:.2f}")

# %% [markdown]
# `run.metrics` has one row per update.

# %%
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

metrics = run.metrics.to_pandas()
fitted = metrics[metrics["update"] >= run.config.evaluator.warmup]  # before, the evaluator knows nothing
figure = Figure(figsize=(9, 3.2), layout="constrained")
FigureCanvasAgg(figure)
left, right = figure.subplots(1, 2)
left.plot(metrics["update"], metrics["return"].rolling(20).mean())
left.set(xlabel="update", ylabel="return")
right.plot(fitted["update"], fitted["start_error"].rolling(20).mean(), color="tab:orange")
right.set(xlabel="update, from the end of the warm-up on", ylabel="|return − prediction|", ylim=(0, None))
figure.savefig(Path("first_run.png"), dpi=120)
print("picture in first_run.png")
