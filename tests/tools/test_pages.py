"""Pages and notebooks that are made from the code are those of the present code; the reference has every public name."""

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import evarl
from evarl.cli.main import COMMANDS
from evarl.runs import directory
from tests.evaluation.tiny import train_tiny
from tools import command_line, figures, notebooks, site_hooks

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_command_line_is_that_of_the_parsers():
    assert command_line.PAGE.read_text() == command_line.page(), "`make docs-pages` writes it anew"


def test_the_page_of_the_command_line_has_every_command_and_setting():
    page = command_line.page()
    assert all(f"\n## evarl {name}\n" in page for name in COMMANDS)
    settings = command_line.flat(evarl.TrainConfig().to_dict())
    assert len(settings) > 60
    missing = [name for name in settings if f"`--{name.replace('_', '-')}`" not in page]
    assert not missing


def test_what_options_take_and_default_to():
    page = command_line.page()
    assert "| `--gradient` | `exact` `paired` `critic` `printed` `score` | `critic` |" in page
    assert "| `--critic-sees-context` `--no-critic-sees-context` |  | `True` |" in page
    assert "| `RUN` |  | required | Directory of a finished run with an evaluator. |" in page


def test_every_public_name_is_in_the_reference():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: evarl\.(\w+)$", pages, re.M))
    folders = {path.parent.name for path in (ROOT / "src" / "evarl").glob("*/__init__.py")} | {"errors"}
    missing = sorted(set(evarl.__all__) - shown - folders)
    assert not missing, f"add ::: evarl.NAME to a page in docs/reference for {missing}"
    assert not sorted(shown - set(evarl.__all__))


@pytest.mark.parametrize("folder", ["ope", "bounds", "stats"])
def test_every_name_of_a_library_is_in_the_reference(folder):
    page = (ROOT / "docs" / "reference" / f"{folder}.md").read_text()
    shown = re.findall(rf"^::: evarl\.{folder}\.(\w+)$", page, re.M)
    assert sorted(shown) == sorted(getattr(evarl, folder).__all__)


def test_the_notebooks_are_those_of_the_scripts(tmp_path):
    assert not notebooks.stale(ROOT / "examples"), "`make notebooks` writes them anew"
    assert len(list((ROOT / "examples").glob("*.ipynb"))) >= 3
    (tmp_path / "a.py").write_text("# %%\nx = 1\n")
    (tmp_path / "b.ipynb").write_text("{}")
    assert notebooks.stale(tmp_path) == [tmp_path / "a.ipynb", tmp_path / "b.ipynb"]


def test_cells_of_a_notebook_are_the_whole_script():
    for script in notebooks.scripts(ROOT / "examples"):
        cells = notebooks.notebook(script.read_text())["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        kept = [line for line in script.read_text().splitlines() if line and not line.startswith("# ") and line != "#"]
        assert [line for line in code.splitlines() if line] == kept


@pytest.mark.slow
@pytest.mark.parametrize("script", notebooks.scripts(ROOT / "examples"), ids=lambda path: path.stem)
def test_examples_run(script, tmp_path):
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "predicted" in done.stdout
    if script.stem == "first_run":
        assert (tmp_path / "first_run.png").stat().st_size > 5000
    if script.stem == "family_of_worlds":
        errors = dict(re.findall(r"^(\w+) +error +([\d.]+)", done.stdout, re.M))
        assert float(errors["evaluable"]) < 0.5 * float(errors["passive"])


def test_every_file_of_a_run_is_on_its_page(tmp_path):
    page = (ROOT / "docs" / "files.md").read_text()
    run = train_tiny(tmp_path / "run", log_megabytes=1.0, log_from="both")
    found = {path.relative_to(run.path).parts[0] for path in run.path.rglob("*") if path.is_file()}
    assert found == {*directory.FILES, *directory.FOLDERS, "assessment.safetensors"} - {directory.CALIBRATED}
    for name in {*found, directory.CALIBRATED}:
        assert re.search(rf"^\| `{re.escape(name)}/?`", page, re.M), name


def test_links_of_documents_become_links_of_the_site():
    page = "[m](docs/method.md#x) ![g](docs/crossing.gif) [c](CONTRIBUTING.md) [s](src/evarl) [w](https://a.b/c) [h](#here)"
    assert site_hooks.with_site_links(page, "index.md") == (
        "[m](method.md#x) ![g](crossing.gif) [c](contributing.md) s [w](https://a.b/c) [h](#here)"
    )
    inner = "[r](../../README.md) [b](../../results/benchmarks/bench.md) [o](../method.md)"
    assert site_hooks.with_site_links(inner, "tutorials/own-logs.md") == (
        "[r](../index.md) [b](../repository/results/benchmarks/bench.md) [o](../method.md)"
    )


def test_every_picture_of_the_documents_is_made_by_a_command():
    shown = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text()):
            shown.add((page.parent / link).resolve().relative_to(ROOT).as_posix())
    assert shown == figures.PICTURES.keys()
    kept = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.*") if path.suffix in (".gif", ".png")
    }
    assert kept <= shown


@pytest.mark.parametrize("name", ["scaling", "scaling-games"])
def test_the_picture_of_growth_is_that_of_its_figures(name):
    files = figures.scaling(f"{name}.json"), (ROOT / "docs" / f"{name}.png").read_bytes()
    drawn, kept = (imread(io.BytesIO(x)) for x in files)
    assert drawn.shape == kept.shape
    assert np.abs(drawn - kept).mean() < 0.01, (
        "`make figures` draws it anew"
    )  # letters may be drawn a little differently
