"""Loads damaged files for `make fuzz`, with bounded memory: `python -m benchmarks.fuzz_worker FOLDER FIRST LAST SEED`."""

import json
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.fuzz import Result, fuzz, importable
from benchmarks.loaders import kinds_of, make_payload
from evarl.runs.run import Run

MEMORY = 2 * 2**30
"""Bytes that a worker may take beside what it has when it begins."""


def limit_memory() -> None:
    """Let allocations fail beyond `MEMORY`; address space is what the system can limit."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(source: str, first: str, last: str, seed: str) -> None:
    """Work on a copy of the files: whoever is killed leaves a damaged one."""
    with tempfile.TemporaryDirectory(dir=source, prefix="work-") as name:
        folder = Path(name) / "files"
        marker = Path(name) / "executed"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("work-*"))
        make_payload(folder, marker)
        with importable(folder):
            kinds = kinds_of(folder, Run.load(folder / "run"), marker)
            for kind in kinds:
                kind.load(kind.file)  # compiles what is compiled once
            limit_memory()
            print(json.dumps("ready"), flush=True)
            fuzz(kinds, marker, range(int(first), int(last)), int(seed), _write, _write)


def _write(result: Result) -> None:
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
