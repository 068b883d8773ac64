"""`make figures`: the pictures of README.md and docs/, each from what is in the repository, or from training.

PICTURES says what each is made of. Without arguments all but `crossing.gif` are made, which takes the training of `make demo`:
`make figures ARGS=crossing.gif`.
"""

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from evarl.storage.files import write_bytes

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 1100, 1000
"""Of the picture of a report."""


class Picture(NamedTuple):
    """What makes a picture of a document, and from what."""

    source: str
    make: Callable[[], bytes] | None
    """None for pictures that another command writes."""
    quick: bool = True


def scaling(name: str) -> bytes:
    """The figures of `make bench-scaling` in results/benchmarks, drawn anew."""
    from benchmarks.scaling import _whole, series
    from benchmarks.scaling_figure import figure

    sweeps = json.loads((ROOT / "results" / "benchmarks" / name).read_text())["sweeps"]
    return figure({name: series(_whole(points)) for name, points in sweeps.items()})


def report() -> bytes:
    """The top of a report in the browser."""
    from tests.studies.browser import scheme, started

    with tempfile.TemporaryDirectory() as profile, started(Path(profile)) as driver:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme(driver, "light")
        driver.get((ROOT / "results" / "reproduce" / "mismatch" / "report.html").as_uri())
        driver.execute_script("document.documentElement.style.overflow = 'hidden'")  # no scroll bar
        return driver.get_screenshot_as_png()


def crossing() -> bytes:
    """The animation of two policies that are trained for it."""
    subprocess.run(["make", "demo"], cwd=ROOT, check=True)
    return (ROOT / "runs" / "demo.gif").read_bytes()


PICTURES = {
    "docs/crossing.gif": Picture("two trainings, by `make demo`", crossing, quick=False),
    "docs/report.png": Picture("results/reproduce/mismatch/report.html, in Chromium", report),
    **{
        f"docs/{name}.png": Picture(
            f"results/benchmarks/{name}.json, of `make bench-scaling`", functools.partial(scaling, f"{name}.json")
        )
        for name in ("scaling", "scaling-games")
    },
    "results/reproduce/gradients/return-against-error.png": Picture("job files, by `make results`", None),
}
"""Every picture that a document shows."""


def main(names: list[str]) -> None:
    """Make some pictures, by default those that are quick."""
    known = {Path(path).name: path for path, one in PICTURES.items() if one.make is not None}
    if unknown := sorted(set(names) - known.keys()):
        raise SystemExit(f"figures: there is no {unknown[0]}; there are {', '.join(known)}")
    for name, path in known.items():
        picture = PICTURES[path]
        if picture.make is not None and (name in names if names else picture.quick):
            write_bytes(ROOT / path, picture.make())
            print(f"wrote {path} from {picture.source}")


if __name__ == "__main__":
    main(sys.argv[1:])
