"""`make roofline`: what one update must compute and move, beside what this machine can, and where the rest of its time goes.

A bound on the time of an update is the larger of its floating-point operations ÷ those of a large matrix product in a second, and
its bytes ÷ those of a copy in a second. The compiler counts every array that a kernel reads or writes; nearly all of those of an
update are in the cache of a core, so the copy is one of half a MiB. Small kernels take longer: each costs a start, whatever it
computes. How long a start takes is measured by a chain of products with a matrix of 8 × 8.
"""

import dataclasses
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import tyro
from jax import Array
from jax.tree_util import Partial

from benchmarks.about import about
from benchmarks.programs import learner_for
from benchmarks.specs import aware
from benchmarks.tables import Sheet
from evarl.learning.configuration import with_settings
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import Learner
from evarl.learning.presets import preset
from evarl.simulation.compiled import CompiledSimulator
from evarl.storage.files import write_bytes

WORLDS = ("navigation", "gymnax/Asterix-MinAtar", "gymnax/Freeway-MinAtar", "gymnax/SpaceInvaders-MinAtar")
UPDATES = {"navigation": 100}
KERNEL = re.compile(r" = \S+(?: \S+)? (?:fusion|dot|copy|sort|scatter|custom-call|convolution|reduce|call)\(")


class Cost(NamedTuple):
    """What a program computes, moves and starts."""

    flops: float
    bytes: float
    kernels: float

    def plus(self, other: "Cost", times: float) -> "Cost":
        """The sum with another one that runs so many times."""
        return Cost(*(a + times * b for a, b in zip(self, other, strict=True)))


def counted(compiled: Any) -> Cost:
    """The compiler's count, with the body of a loop once. Operations within a fused computation are one kernel."""
    found, text = compiled.cost_analysis(), compiled.as_text()
    outside = re.sub(r"(?ms)^%?(?:fused_computation|wrapped|region_\d+\.\d+_)\S* \(.*?^\}", "", text)
    return Cost(found["flops"], found["bytes accessed"], len(KERNEL.findall(outside)))


def best(run: Callable[[], Any], repeats: int = 7) -> float:
    """Least seconds of some repetitions, after one that is not counted: what the machine can do, not what it did on average."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def machine() -> dict[str, float]:
    """Operations per second of a matrix product, bytes per second of copies, and seconds for the start of a kernel."""
    size, large, small = 1024, jnp.ones(2**26), jnp.ones(2**17)
    matrix = jnp.full((size, size), 1.0 / size)
    product = jax.jit(lambda x: jax.lax.fori_loop(0, 10, lambda _, y: y @ x, x))
    copy = jax.jit(lambda x: x + 1.0)
    turns, chain, mix = 1000, 50, jnp.eye(8)

    def one_by_one(x: Array) -> Array:
        for _ in range(chain):
            x = x @ mix  # products are not fused with one another
        return x

    started = jax.jit(lambda x: jax.lax.fori_loop(0, turns, lambda _, x: one_by_one(x), x))
    copied = jax.jit(lambda x: jax.lax.fori_loop(0, turns, lambda _, x: x * 1.001, x))
    return {
        "flops": 10 * 2 * size**3 / best(lambda: product(matrix)),
        "bytes": 2 * large.nbytes / best(lambda: copy(large)),
        "cached": 2 * small.nbytes * turns / best(lambda: copied(small)),
        "start": best(lambda: started(jnp.ones((1, 8)))) / (turns * chain),
    }


def update_cost(learner: Learner, engine: CompiledEngine) -> Cost:
    """One update: the compiler's count, and the steps of its loops but the first."""
    config, assessment = learner.config, learner.assessment
    state = jax.eval_shape(learner.init, jax.random.PRNGKey(0))
    total = counted(engine._compiled)
    assert isinstance(learner.simulator, CompiledSimulator)

    def one_step(state: Any) -> Any:
        noise, act = learner._exploration
        batch = dataclasses.replace(learner.batch, steps=1)
        return learner.simulator.collect(batch, Partial(act, state.agent.policy), state.worlds, state.key, 0, noise)

    total = total.plus(counted(jax.jit(one_step).lower(state).compile()), config.steps - 1)
    if assessment is not None:
        short = dataclasses.replace(assessment, horizon=1)
        act = lambda state: Partial(learner.agent.act, state.agent.policy)  # noqa: E731
        taken = jax.jit(lambda state: short.take(act(state), state.key, config.assessment.replicates, learner.world))
        total = total.plus(counted(taken.lower(state).compile()), assessment.horizon - 1)
    return total


def measured(world: str, changes: dict[str, Any]) -> dict[str, float]:
    """Cost and seconds of one update."""
    learner = learner_for(with_settings(preset(world), changes).resolved())
    engine, updates = CompiledEngine(learner, 1), UPDATES.get(world, 20)
    state, first = engine.init([0]), learner.config.evaluator.warmup + 1

    def run() -> Any:
        nonlocal state
        state, _ = engine.advance(state, first, updates)
        return state

    return update_cost(learner, engine)._asdict() | {"seconds": best(run) / updates}


def main(worlds: tuple[str, ...] = WORLDS, out: Path = Path("runs/roofline")) -> None:
    """Measure, print, and keep roofline.json and roofline.md in a directory."""
    limits = machine()
    sheet = Sheet(
        f"One update. This machine: {limits['flops'] / 1e9:.0f} Gflop/s in a product of 1024 × 1024 matrices, "
        f"{limits['cached'] / 2**30:.1f} GiB/s in a copy within the cache of a core ({limits['bytes'] / 2**30:.1f} beyond it), "
        f"{limits['start'] * 1e6:.2f} µs for the start of a kernel.",
        ("world", "program", "Mflop", "MiB", "kernels", "ms", "bound by flops", "by bytes", "starts", "rest"),
    )
    results: dict[str, Any] = {"about": about(), "machine": limits, "updates": {}}
    for world in worlds:
        for name, changes in {"A2C": {}, "EvA-RL, factored": aware()}.items():
            one = measured(world, changes)
            results["updates"][f"{world}: {name}"] = one
            parts = one["flops"] / limits["flops"], one["bytes"] / limits["cached"], one["kernels"] * limits["start"]
            shares = [f"{part / one['seconds']:.0%}" for part in parts]
            rest = max(0.0, 1 - (max(parts[:2]) + parts[2]) / one["seconds"])
            sizes = f"{one['flops'] / 1e6:,.0f}", f"{one['bytes'] / 2**20:,.0f}", f"{one['kernels']:,.0f}"
            sheet.add(world, name, *sizes, f"{one['seconds'] * 1e3:.2f}", *shares, f"{rest:.0%}")
    write_bytes(out / "roofline.json", (json.dumps(results, indent=2) + "\n").encode())
    write_bytes(out / "roofline.md", sheet.markdown().encode())
    sheet.show()


if __name__ == "__main__":
    tyro.cli(main)
