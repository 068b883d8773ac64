"""`make bench-page`: what `make bench` and `make bench-scaling` found, from `results/benchmarks`, put into the page on speed."""

from benchmarks.race import ROOT
from evarl.report.markdown import fill_page

RESULTS = ROOT / "results" / "benchmarks"
PAGE = ROOT / "docs" / "performance.md"


def marks() -> dict[str, str]:
    """What belongs between which marks of the page."""
    return {
        file.stem: file.read_text().strip() for file in sorted(RESULTS.glob("*.md")) if not file.stem.startswith("ope")
    }


if __name__ == "__main__":
    fill_page(PAGE, marks())
    print(f"wrote {PAGE.relative_to(ROOT)}")
