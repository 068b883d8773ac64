"""Many updates of several seeds at a time, for the host to log, save and show progress in between."""

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from evarl.agents.agent import Metrics
from evarl.agents.trajectory import Trajectory
from evarl.errors import WorldError
from evarl.learning.learner import Experience, Learner, LearnerState
from evarl.simulation.host import HostSimulator
from evarl.storage.compiled import RUN_ONCE
from evarl.worlds.world import HostEnvironments, HostWorld

Opened = Callable[[HostWorld, int], HostEnvironments]
"""Opens so many environments of a world."""

Lower = Callable[..., jax.stages.Lowered]
"""Lowers a function of arrays, lists and dictionaries, called like `lowered`."""


def lowered(
    name: str, function: Callable[..., Any], *arguments: Any, used_up: tuple[int, ...] = ()
) -> jax.stages.Lowered:
    """The function, traced and lowered; the arguments that are used up make room for the results."""
    return jax.jit(function, donate_argnums=used_up).lower(*arguments)


CAPACITY = 256
"""Updates in one call at the most. How many of them are run is an argument of the compiled program, not a part of it:
whatever the host asks for, it is the same machine code that computes an update, so the numbers cannot depend on it."""


class CompiledEngine:
    """JAX worlds: updates are looped inside one compiled program, and the seeds, spread over the devices, vmapped."""

    def __init__(self, learner: Learner, seeds: int, lower: Lower = lowered):
        self.learner, self.template = learner, _template(learner, seeds)
        self._structure, self._lower = jax.tree.structure(self.template), lower
        mesh = Mesh(_devices_for(seeds), ("seeds",))
        by_seed, alike = PartitionSpec("seeds"), PartitionSpec()
        self._placement = NamedSharding(mesh, by_seed)
        program: Callable[..., Any] = self._advance_leaves
        if mesh.size > 1:  # the devices have nothing to tell one another, so each runs its seeds to the end
            lower = lowered
            program = jax.shard_map(
                program,
                mesh=mesh,
                in_specs=(by_seed, alike, alike),
                out_specs=(by_seed, PartitionSpec(None, "seeds")),
                check_vma=False,
            )
        leaves = jax.tree.leaves(self._placed())
        number = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, alike))
        self._compiled = lower(f"update-{seeds}", program, leaves, number, number, used_up=(0,)).compile()

    def memory(self) -> int:
        """Bytes the program needs, from the compiler's own plan of its buffers."""
        return planned_bytes(self._compiled)

    def cost(self) -> dict[str, float]:
        """Floating-point operations, bytes and instructions, as the compiler counts them: the body of a loop once."""
        counted = cast(dict[str, float], self._compiled.cost_analysis())
        instructions = (self._compiled.as_text() or "").count(" = ")
        return {"flops": counted["flops"], "bytes": counted["bytes accessed"], "instructions": instructions}

    def init(self, seeds: list[int]) -> LearnerState:
        """Seed by seed and stacked afterwards: batched orthogonal initialisation can hang on a CPU."""
        states = [jax.device_get(self._init(jax.random.PRNGKey(seed))) for seed in seeds]
        return jax.tree.unflatten(
            self._structure, [jnp.asarray(np.stack(leaves)) for leaves in zip(*states, strict=True)]
        )

    @functools.cached_property
    def _init(self) -> Callable[[Array], list[Array]]:
        """From a key to the leaves of a state."""
        init = lambda key: jax.tree.leaves(self.learner.init(key))  # noqa: E731
        key = jax.ShapeDtypeStruct((2,), jnp.uint32)
        return self._lower("init", init, key).compile(compiler_options=RUN_ONCE)

    def advance(self, state: LearnerState, first: int, count: int) -> tuple[LearnerState, dict[str, np.ndarray]]:
        """Run at most CAPACITY updates from number `first` on; metrics are [count, seeds]. The given state is used up."""
        leaves = jax.device_put(jax.tree.leaves(state), self._placement)
        leaves, metrics = self._compiled(leaves, np.int32(first), np.int32(count))
        return jax.tree.unflatten(self._structure, leaves), {name: np.asarray(x)[:count] for name, x in metrics.items()}

    def advance_logged(self, state: LearnerState, index: int) -> tuple[LearnerState, dict[str, np.ndarray], Trajectory]:
        """The batch is collected a second time, by the same function from the same keys.

        So the program that trains is the same with and without a log, and with it every number.
        """
        trajectory = jax.device_get(self._collect(jax.device_put(state, self._placement), np.int32(index)))
        return *self.advance(state, index, 1), trajectory

    @functools.cached_property
    def _collect(self) -> Callable[[LearnerState, np.int32], Trajectory]:
        """Seeds are spread and vmapped just as in training, so that the log has the very bits that were learnt from."""

        def collect(state: LearnerState, index: Array) -> Trajectory:
            one = lambda state: self.learner.gather(state, state.worlds, index)[1].trajectory  # noqa: E731
            if jax.tree.leaves(state)[0].shape[0] > 1:
                return jax.vmap(one)(state)
            return jax.tree.map(lambda x: x[None], one(jax.tree.map(lambda x: x[0], state)))

        mesh, by_seed = self._placement.mesh, self._placement.spec
        if mesh.size > 1:
            specs = by_seed, PartitionSpec()
            collect = jax.shard_map(collect, mesh=mesh, in_specs=specs, out_specs=by_seed, check_vma=False)
        number = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, PartitionSpec()))
        return jax.jit(collect).lower(self._placed(), number).compile()

    def _placed(self) -> LearnerState:
        """The template, spread over the devices."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._placement), self.template)

    def _advance_leaves(self, leaves: list[Array], first: Array, count: Array) -> tuple[list[Array], Metrics]:
        """`_advance` from the leaves of a state to those of the next."""
        state, rows = self._advance(jax.tree.unflatten(self._structure, leaves), first, count)
        return jax.tree.leaves(state), rows

    def _advance(self, state: LearnerState, first: Array, count: Array) -> tuple[LearnerState, Metrics]:
        """The number of the update is shared by all seeds, so what depends on it is decided once and not selected.

        A single seed is not vmapped: products of batches of one matrix compile to slower code than plain ones. Its axis
        is taken off before the loop and not inside it, where the whole state would be copied in every update.
        """
        alone = jax.tree.leaves(state)[0].shape[0] == 1
        update = self.learner.update if alone else jax.vmap(self.learner.update, in_axes=(0, None))
        update = jax.jit(update, inline=True)  # traced once, for its shapes and for the loop
        if alone:
            state = jax.tree.map(lambda leaf: leaf[0], state)
        shapes = jax.eval_shape(update, state, first)[1]
        rows = jax.tree.map(lambda x: jnp.zeros((CAPACITY, *x.shape), x.dtype), shapes)

        def body(offset: Array, carry: tuple[LearnerState, Metrics]) -> tuple[LearnerState, Metrics]:
            state, rows = carry
            state, metrics = update(state, first + offset)
            return state, jax.tree.map(lambda table, row: table.at[offset].set(row), rows, metrics)

        state, rows = jax.lax.fori_loop(0, count, body, (state, rows))
        if alone:
            state, rows = jax.tree.map(lambda leaf: leaf[None], state), jax.tree.map(lambda row: row[:, None], rows)
        return state, rows


def planned_bytes(compiled: Any) -> int:
    """What a compiled program needs: arguments, results that do not take their place, and temporaries."""
    plan = compiled.memory_analysis()
    kept = plan.argument_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    return int(kept + plan.temp_size_in_bytes)


def _template(learner: Learner, seeds: int) -> LearnerState:
    """Shapes and dtypes of the states of some seeds."""
    template = jax.eval_shape(learner.init, jax.random.PRNGKey(0))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((seeds, *x.shape), x.dtype), template)


def _devices_for(seeds: int) -> list[jax.Device]:
    """As many devices as can take equally many seeds."""
    devices = jax.local_devices()
    return devices[: max(count for count in range(1, len(devices) + 1) if seeds % count == 0)]


class HostEngine:
    """Host worlds: one seed, a Python loop around the environments, and the same compiled learning."""

    def __init__(self, learner: Learner, opened: Opened | None = None):
        self.learner, self.template = learner, _template(learner, 1)
        self._opened = opened
        self._structure = jax.tree.structure(self.template)
        self._learn = jax.jit(self._update, donate_argnums=0)
        self._states: Any = None
        self._fault: WorldError | None = None
        self._seed = 0

    def memory(self) -> int:
        """Not known."""
        return 0

    def init(self, seeds: list[int]) -> LearnerState:
        """One seed at a time."""
        (self._seed,) = seeds
        self._states = self._fault = None
        state = jax.jit(self.learner.init, compiler_options=RUN_ONCE)(jax.random.PRNGKey(self._seed))
        return jax.tree.map(lambda leaf: leaf[None], state)

    def advance(self, state: LearnerState, first: int, count: int) -> tuple[LearnerState, dict[str, np.ndarray]]:
        """Run `count` updates; fewer if the world fails on the way, and then the next call says so."""
        state, columns, _ = self._advance(state, first, count)
        return state, columns

    def advance_logged(self, state: LearnerState, index: int) -> tuple[LearnerState, dict[str, np.ndarray], Trajectory]:
        """Run one update and keep its batch."""
        state, columns, trajectory = self._advance(state, index, 1)
        return state, columns, jax.tree.map(lambda leaf: np.asarray(leaf)[None], trajectory)

    def _advance(
        self, state: LearnerState, first: int, count: int
    ) -> tuple[LearnerState, dict[str, np.ndarray], Trajectory]:
        """Run `count` updates; also the last batch."""
        if self._fault is not None:
            raise self._fault
        state = jax.tree.map(lambda leaf: leaf[0], state)
        if self._states is None:
            batch, simulator = self.learner.batch, cast(HostSimulator, self.learner.simulator)
            environments = None if self._opened is None else self._opened(simulator.world, batch.environments)
            self._states = simulator.begin(batch, state.key, self._seed, first, environments)
            state = self.learner.begun_anew(state, first)
        rows: list[PackedMetrics] = []
        for index in range(first, first + count):
            try:
                self._states, experience = self.learner.gather(state, self._states, index)
            except WorldError as error:
                if not rows:
                    raise
                self._fault = error
                break
            leaves, metrics = self._learn(jax.tree.leaves(state), np.int32(index), experience)
            state = jax.tree.unflatten(self._structure, leaves)
            rows.append(metrics)
        columns = unpacked_metrics(rows)
        return jax.tree.map(lambda leaf: leaf[None], state), columns, experience.trajectory

    def _update(self, leaves: list[Array], index: Array, experience: Experience) -> tuple[list[Array], "PackedMetrics"]:
        """One update on the leaves of a state: to take the state apart and together again takes longer than to call this."""
        state, metrics = self.learner.update(jax.tree.unflatten(self._structure, leaves), index, experience)
        return jax.tree.leaves(state), PackedMetrics.create(metrics)


class PackedMetrics(struct.PyTreeNode):
    """Metrics of one update, one array for each dtype: to fetch each number on its own takes as long as some steps."""

    names: tuple[tuple[str, ...], ...] = struct.field(pytree_node=False)
    values: tuple[Array, ...]

    @classmethod
    def create(cls, metrics: Metrics) -> "PackedMetrics":
        """Scalars, sorted by dtype."""
        kinds: dict[str, list[str]] = {}
        for name, value in metrics.items():
            kinds.setdefault(str(value.dtype), []).append(name)
        values = tuple(jnp.stack([metrics[name] for name in names]) for names in kinds.values())
        return cls(tuple(map(tuple, kinds.values())), values)


def unpacked_metrics(rows: list[PackedMetrics]) -> dict[str, np.ndarray]:
    """Columns [updates, 1] of metrics by name."""
    columns: dict[str, np.ndarray] = {}
    for names, values in zip(rows[0].names, zip(*(row.values for row in rows), strict=True), strict=True):
        table = np.stack([np.asarray(value) for value in values])
        columns |= {name: table[:, position : position + 1] for position, name in enumerate(names)}
    return columns


Engine = CompiledEngine | HostEngine
"""Runs updates of a group of seeds; both have `learner`, `template`, `init`, `advance`, `advance_logged` and `memory`."""


def make_engine(learner: Learner, seeds: int, opened: Opened | None = None, lower: Lower = lowered) -> Engine:
    """The engine that a learner's world needs, for so many seeds at a time.

    `opened` opens environments on the host, `lower` lowers the programs of worlds in JAX.
    """
    return CompiledEngine(learner, seeds, lower) if learner.simulator.traceable else HostEngine(learner, opened)
