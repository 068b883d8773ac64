"""`make bench`: training beside the world alone, beside other libraries, and part by part, in one run."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import tyro

from benchmarks.about import about
from benchmarks.catalogue import A2C, ALONE, COURSES, available, name_of, settings, tasks
from benchmarks.race import Interrupted, Task, race
from benchmarks.report import sheets
from benchmarks.specs import Kind
from evarl.errors import unknown_name
from evarl.storage.files import write_bytes


def main(
    worlds: tuple[str, ...] = tuple(COURSES),
    repeats: int = 7,
    peers: bool = True,
    evaluators: tuple[Kind, ...] | None = None,
    parts: tuple[Kind, ...] = ("factored",),
    cold: bool = True,
    tiny: bool = False,
    only: tuple[str, ...] = (),
    quick: bool = False,
    out: Path = Path("runs/bench"),
) -> None:
    """Measure, print, and keep bench.json, bench.md and the programs' messages (logs/) in a directory.

    The tables of a world are printed and kept as soon as it is measured; Ctrl-C keeps what there is of the world under way.

    Args:
        worlds: which worlds.
        repeats: interleaved repetitions of each program.
        peers: time other libraries too, as far as `make bench-peers-setup` has installed them.
        evaluators: kinds of evaluators; by default all in navigation and Asterix, fewer elsewhere.
        parts: evaluators with which updates are also timed part by part (and plain A2C with them).
        cold: start each program twice, to know how long it compiles with and without a cache.
        only: programs, by the names that the tables give them; all when not given.
        quick: the first of the worlds alone, with the programs of the main ratios, three repetitions and warm caches.
        tiny: a few environments and one update, to see that everything runs; the figures mean nothing.
        out: directory for the results.
    """
    if quick:
        worlds, repeats, cold, parts, evaluators = worlds[:1], min(repeats, 3), False, (), ("factored",)
        only = only or (ALONE, A2C, name_of("factored"), *(COURSES[worlds[0]].peers if peers else ()))
    for world in worlds:
        if world not in COURSES:
            raise SystemExit(str(unknown_name("world", world, COURSES)))
    wanted = {peer for world in worlds for peer in COURSES[world].peers}
    missing = sorted(wanted - set(available(wanted)))
    if peers and missing:
        print(f"not installed: {', '.join(missing)}; `make bench-peers-setup` does that", file=sys.stderr)
    asked = {"repeats": repeats, "peers": peers, "evaluators": evaluators, "parts": parts, "tiny": tiny}
    results: dict[str, Any] = {"about": about(), "asked": asked, "settings": {}, "worlds": {}}
    for world in worlds:
        programs = _programs(world, tasks(world, evaluators, parts, peers, tiny), only)
        results["settings"][world] = {name: settings(task) or _flags(task.command) for name, task in programs.items()}
        try:
            results["worlds"][world] = race(world, programs, repeats, out / "logs", cold)
        except Interrupted as interrupted:
            results["worlds"][world] = interrupted.found
            _keep(results, world, out)
            raise SystemExit(130) from None
        _keep(results, world, out)


def _programs(world: str, programs: dict[str, Task], only: tuple[str, ...]) -> dict[str, Task]:
    """Those that were asked for, of the peers those that are installed."""
    missing = {*COURSES[world].peers} - {*available(COURSES[world].peers)}
    for name in only:
        if name not in programs and name not in missing:
            raise SystemExit(str(unknown_name("program", name, programs)))
    return {name: task for name, task in programs.items() if not only or name in only}


def _keep(results: dict[str, Any], world: str, out: Path) -> None:
    """Write all that was measured, and print the tables of one world."""
    results["about"]["load_at_end"] = os.getloadavg()
    write_bytes(out / "bench.json", (json.dumps(results, indent=2) + "\n").encode())
    tables = "\n".join(sheet.markdown() for sheet in sheets(results["worlds"]))
    write_bytes(out / "bench.md", tables.encode())
    for sheet in sheets({world: results["worlds"][world]}):
        sheet.show()
    print(f"\nfigures in {out / 'bench.json'}, tables in {out / 'bench.md'}")


def _flags(command: tuple[str, ...]) -> list[str]:
    """The settings of a peer: its script and what follows, without the places where it is."""
    return [Path(command[1]).name, *command[2:]]


if __name__ == "__main__":
    tyro.cli(main)
