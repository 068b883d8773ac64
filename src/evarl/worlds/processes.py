"""Environments of a host world in several processes, for those whose steps are slow. Results are the same as in one process.

Each process is a fresh interpreter with some of the environments. It is spoken to over a socket, and writes its observations
into memory that all share. It ends when its socket is closed, which happens at the latest when this process ends, whatever ends
it.
"""

import contextlib
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Literal

import cloudpickle
import numpy as np
from jaxtyping import Float

from evarl.errors import EvarlError, InputError, WorldError
from evarl.storage.files import reason
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import HostEnvironments, HostStep, HostWorld

Vectorise = Literal["auto", "sync", "processes", "envpool"]
POOLED = "environments were those of EnvPool: other numbers than Gymnasium's, and other ones after --resume than in one piece"
SLOW = 3e-4
"""Seconds of a step from which on `auto` takes processes: a message to one and back takes about a third of it."""
PROBE_STEPS, PROBE_SECONDS = 50, 0.5
"""How long `auto` tries."""
WAIT = 5.0
"""Seconds in which a process has to end."""


def open_vectorised(world: HostWorld, count: int, how: Vectorise, notify: Callable[[str], None]) -> HostEnvironments:
    """Open environments in this process (sync) or in as many as there are processors; `auto` decides by the time of a step.

    With `envpool` they are those of EnvPool, whose numbers are its own.
    """
    if how == "envpool":
        from evarl.worlds.pools import PoolEnvironments

        return PoolEnvironments(world, count)
    workers = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, count)
    if how == "auto":
        if workers < 2 or (seconds := step_seconds(world)) < SLOW:
            return world.open(count)
        notify(f"a step of {world.name} takes {1e3 * seconds:.1f} ms: environments run in {workers} processes")
    if how == "sync":
        return world.open(count)
    try:
        return ProcessEnvironments(world, count, workers)
    except EvarlError as error:
        if how != "auto":
            raise
        notify(f"environments run in one process: {error}")
        return world.open(count)


def step_seconds(world: HostWorld) -> float:
    """Median time of a step with random actions, in an environment that is opened for this.

    The mean would be that of the machine's other work: one pause of 15 ms makes 50 steps of CartPole look slow.
    """
    space, generator, ended = world.action_space, np.random.default_rng(0), True
    times: list[float] = []
    with contextlib.closing(world.open(1)) as environments:
        began = time.perf_counter()
        while len(times) < PROBE_STEPS and time.perf_counter() - began < PROBE_SECONDS:
            if isinstance(space, Discrete):
                action = generator.integers(space.n, size=1)
            else:
                low, high = (np.clip(bound, -1.0, 1.0) for bound in space.bounds())
                action = generator.uniform(low, high)[None].astype(np.float32)
            before = time.perf_counter()
            try:
                if ended:
                    environments.reset(0, len(times))
                    before = time.perf_counter()
                ended = bool(environments.step(action).done[0])
            except WorldError:  # training will meet it again
                ended = True
            times.append(time.perf_counter() - before)
    return float(np.median(times))


class ProcessEnvironments(HostEnvironments):
    """Environments in several processes; neighbours share one."""

    def __init__(self, world: HostWorld, count: int, workers: int) -> None:
        try:
            described = cloudpickle.dumps(world)
        except Exception as error:  # whatever the user's objects raise
            raise InputError(f"vectorise: {world.name} cannot be sent to a process: {reason(error)}") from error
        self._name, space = world.name, world.observation_space
        shape, dtype = (count, *space.shape), np.dtype(space.dtype)
        self._bounds = np.linspace(0, count, workers + 1).astype(int).tolist()
        self._workers: list[Worker] = []
        self._finalizer = weakref.finalize(self, _end, self._workers)
        with tempfile.TemporaryFile() as file:
            file.truncate(max(1, int(np.prod(shape)) * dtype.itemsize))
            self._observation = np.frombuffer(mmap.mmap(file.fileno(), 0), dtype, int(np.prod(shape))).reshape(shape)
            for first, last in zip(self._bounds, self._bounds[1:], strict=False):
                self._workers.append(Worker(self._name, file.fileno()))
                self._workers[-1].send(described, (first, last, shape, dtype.str))
        try:
            for worker in self._workers:
                worker.receive()
        except EvarlError:
            self.close()
            raise

    def reset(self, index: int, seed: int, options: dict[str, Any] | None = None) -> np.ndarray:
        """Begin an episode."""
        self._call(index, "reset", int(seed), options)
        return self._observation[index].copy()

    def begin(self, index: int, state: Float[np.ndarray, " n"]) -> np.ndarray:
        """Begin an episode at a given state."""
        self._call(index, "begin", np.asarray(state))
        return self._observation[index].copy()

    def place(self, index: int, context: Float[np.ndarray, " P"]) -> None:
        """Give one environment a context, which holds from its next reset on."""
        self._call(index, "place", np.asarray(context))

    def step(self, action: np.ndarray) -> HostStep:
        """Move every environment by one step, those of different processes at the same time."""
        for worker, first, last in zip(self._workers, self._bounds, self._bounds[1:], strict=False):
            worker.send("step", None, np.asarray(action[first:last]))
        replies = [worker.receive() for worker in self._workers]
        columns = (np.concatenate(column) for column in zip(*replies, strict=True))
        return HostStep(self._observation.copy(), *columns)

    def close(self) -> None:
        """End the processes."""
        self._finalizer()

    def _call(self, index: int, what: str, *arguments: Any) -> None:
        at = int(np.searchsorted(self._bounds, index, side="right")) - 1
        self._workers[at].send(what, index - self._bounds[at], *arguments)
        self._workers[at].receive()


class Worker:
    """A process and the socket to it."""

    def __init__(self, world: str, memory: int) -> None:
        ours, theirs = socket.socketpair()
        self._world = world
        with theirs:
            paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "evarl.worlds.process_worker", str(theirs.fileno()), str(memory)],
                pass_fds=(theirs.fileno(), memory),
                stdin=subprocess.DEVNULL,
                env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
            )
        self._connection = Connection(ours.detach())

    def send(self, *message: Any) -> None:
        """Send a message; if the process has ended, `receive` says so."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(pickle.dumps(message))

    def receive(self) -> Any:
        """The answer to the last message; an error there is raised here."""
        try:
            answer, error = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as gone:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(WAIT)
            code = self.process.returncode
            raise WorldError(
                f"world: {self._world} failed: the process of its environments ended (code {code})"
            ) from gone
        if error is not None:
            kind, text = error
            raise (InputError if kind == "InputError" else WorldError)(text) from None
        return answer

    def close(self) -> None:
        """Close the socket, which ends the process."""
        self._connection.close()

    def wait(self) -> None:
        """Wait for its end, and kill it if it does not come."""
        try:
            self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _end(workers: list[Worker]) -> None:
    """End all processes."""
    for worker in workers:
        worker.close()
    for worker in workers:
        worker.wait()


def told(error: EvarlError) -> tuple[str, str]:
    """An error as plain data: whether it is a refusal, and its text."""
    return ("InputError" if isinstance(error, InputError) else "WorldError"), str(error)
