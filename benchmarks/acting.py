"""Speed of `run.predict`: observations per second, one at a time and in batches. `python -m benchmarks.acting`."""

import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import evarl

SECONDS = 1.0
REPETITIONS = 5
BATCHES = (1, 64, 1024)
WORLDS = {"navigation": {}, "gymnax/Asterix-MinAtar": {"horizon": 200}}


def per_second(call: Callable[[], object]) -> list[float]:
    """Calls per second in each of some repetitions, after one call that compiles."""
    call()
    found = []
    for _ in range(REPETITIONS):
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            call()
            count += 1
        found.append(count / (time.perf_counter() - began))
    return found


def main() -> None:
    print("| world | observations in a call | action | observations per second, median (least–greatest of 5) |")
    print("| --- | ---: | --- | ---: |")
    for world, more in WORLDS.items():
        with tempfile.TemporaryDirectory() as folder:
            run = evarl.train("navigation", world=world, updates=2, out=f"{folder}/run", quiet=True, **more)
            space = run.world.observation_space
            rows = np.random.default_rng(0).random((max(BATCHES), *space.shape)) > 0.5
            for size in BATCHES:
                given = (rows[0] if size == 1 else rows[:size]).astype(space.dtype)
                for name, likeliest in {"likeliest": True, "drawn": False}.items():
                    speeds = size * np.asarray(per_second(partial(run.predict, given, likeliest)))
                    told = f"{np.median(speeds):,.0f} ({speeds.min():,.0f}–{speeds.max():,.0f})"
                    print(f"| {world} | {size:,} | {name} | {told} |", flush=True)


if __name__ == "__main__":
    main()
