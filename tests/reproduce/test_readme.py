"""The README says what the job files say."""

from pathlib import Path

from evarl.reproduce.readme import FOLDER, blocks

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_readme_are_those_of_the_results():
    readme = (ROOT / "README.md").read_text()
    for name, block in blocks(ROOT / FOLDER).items():
        assert f"<!-- {name} -->\n{block}\n<!-- end {name} -->" in readme, f"{name}: `make results` writes it anew"
        assert block.count("\n") > 2
