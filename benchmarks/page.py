"""`make bench-page`: what `make bench` and `make bench-scaling` found, from `results/benchmarks`, put into the page on speed."""

from benchmarks.race import ROOT
from evarl.experiments.tables import fill_page

RESULTS = ROOT / "results" / "benchmarks"
PAGE = ROOT / "docs" / "performance.md"


def marks() -> dict[str, str]:
    """What belongs between which marks of the page."""
    return {name: (RESULTS / f"{name}.md").read_text().strip() for name in ("bench", "scaling")}


if __name__ == "__main__":
    fill_page(PAGE, marks())
    print(f"wrote {PAGE.relative_to(ROOT)}")
