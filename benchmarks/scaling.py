"""`make bench-scaling`: how time and memory of evaluation-aware training grow with the size of what it works on."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.about import about
from benchmarks.catalogue import settings
from benchmarks.race import Measured, Task, race
from benchmarks.report import milliseconds
from benchmarks.scaling_figure import figure, slope
from benchmarks.sweeps import SWEEPS
from benchmarks.tables import Sheet, quartiles, spread
from evarl.storage.files import write_bytes

UPDATES = {"navigation": 40, "gymnax/Asterix-MinAtar": 10, "crossing": 40}
"""Updates in one repetition."""

Points = Mapping[str, Measured]
"""Size → figures."""


def main(
    only: tuple[str, ...] = (), repeats: int = 5, tiny: bool = False, out: Path = Path("runs/bench-scaling")
) -> None:
    """Measure, print, and keep scaling.json, scaling.md and scaling.png in a directory.

    Args:
        only: sweeps whose names contain one of these words; by default all. Names are "WORLD: WHAT IS MADE LARGER".
        repeats: interleaved repetitions of each point.
        tiny: a few environments and one update, to see that everything runs; the figures mean nothing.
        out: directory for the results.
    """
    chosen = [sweep for sweep in SWEEPS if not only or any(word in sweep.name for word in only)]
    if not chosen:
        raise SystemExit(f"only: no sweep is called {' or '.join(only)}; there are {', '.join(s.name for s in SWEEPS)}")
    asked = {"repeats": repeats, "tiny": tiny}
    results: dict[str, Any] = {"about": about(), "asked": asked, "settings": {}, "sweeps": {}}
    made: list[Sheet] = []
    for sweep in chosen:
        updates = 1 if tiny else UPDATES[sweep.world]
        tasks = {str(size): Task(sweep.spec(size, updates, tiny).command(), updates) for size in sweep.sizes}
        results["settings"][sweep.name] = {size: settings(task) for size, task in tasks.items()}
        results["sweeps"][sweep.name] = race(sweep.name, tasks, repeats, out / "logs")
        results["about"]["load_at_end"] = os.getloadavg()
        found = {name: _whole(points) for name, points in results["sweeps"].items()}
        made = [growth(found, repeats), points_sheet(found)]
        write_bytes(out / "scaling.json", (json.dumps(results, indent=2) + "\n").encode())
        write_bytes(out / "scaling.md", "\n".join(sheet.markdown() for sheet in made).encode())
        write_bytes(out / "scaling.png", figure({name: series(points) for name, points in found.items()}))
    for sheet in made:
        sheet.show()
    print(f"\nfigures in {out / 'scaling.json'}, tables in {out / 'scaling.md'}, picture in {out / 'scaling.png'}")


def series(points: Points) -> dict[str, np.ndarray]:
    """Sizes, milliseconds per update with quartiles [3, sizes], and memory in GiB: of the process, and as planned."""
    return {
        "size": np.asarray([float(size) for size in points]),
        "milliseconds": np.asarray([quartiles(milliseconds(one)) for one in points.values()]).reshape(-1, 3).T,
        "peak": np.asarray([one["peak_gib"] for one in points.values()]),
        "plan": np.asarray([one["program_gib"] for one in points.values()]),
    }


def growth(sweeps: Mapping[str, Points], repeats: int) -> Sheet:
    """How steep each sweep is."""
    sheet = Sheet(
        f"Growth of evaluation-aware training: exponents (slope of log cost against log size, over the upper half of the "
        f"sizes) and total growth of one update's time (median of {repeats} interleaved repetitions), of the peak memory of "
        "the process (started with a cache, since compiling takes more), and of what the compiler plans for each device.",
        ("world", "larger", "sizes", "time exponent", "growth", "peak exponent", "growth", "plan exponent", "growth"),
    )
    for name, points in sweeps.items():
        if len(points) > 1:
            line = series(points)
            size, cells = line["size"], []
            for cost in (line["milliseconds"][1], line["peak"], line["plan"]):
                cells += [f"{slope(size, cost):.2f}", f"× {cost[-1] / cost[0]:.3g}"]
            world, _, what = name.partition(": ")
            sheet.add(world, what, f"{size[0]:g}–{size[-1]:g} (× {size[-1] / size[0]:g})", *cells)
    return sheet


def points_sheet(sweeps: Mapping[str, Points]) -> Sheet:
    """All points."""
    columns = ("world", "larger", "size", "ms per update", "first start", "cached", "peak", "plan")
    sheet = Sheet("Each size: one update; seconds until the program is ready, without and with a cache; GiB.", columns)
    for name, points in sweeps.items():
        world, _, what = name.partition(": ")
        for size, one in points.items():
            starts = (f"{one['cold_seconds']:.1f}", f"{one['compile_seconds']:.1f}")
            memory = (f"{one['peak_gib']:.2f}", f"{one['program_gib']:.4f}")
            sheet.add(world, what, size, spread(milliseconds(one), "{:.3g}".format), *starts, *memory)
    return sheet


def _whole(points: Points) -> dict[str, Measured]:
    """Those that did not fail."""
    return {size: one for size, one in points.items() if "failed" not in one}


if __name__ == "__main__":
    tyro.cli(main)
