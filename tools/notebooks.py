"""`make notebooks`: a notebook beside every script in examples/ that has `# %%` cells, without outputs.

Outputs are left out so that notebooks follow from scripts alone: the tests compare them.
"""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "examples"
MARK = re.compile(r"^# %%(?P<kind> \[markdown\])?\s*$", re.MULTILINE)


def notebook(script: str) -> dict[str, Any]:
    r"""The notebook of a script; what stands before the first mark is left out.

    >>> [(cell["cell_type"], cell["source"]) for cell in notebook("# %% [markdown]\n# # A\n# %%\nx = 1\n")["cells"]]
    [('markdown', ['# A']), ('code', ['x = 1'])]
    """
    found = list(MARK.finditer(script))
    ends = [*(one.start() for one in found[1:]), len(script)]
    cells = []
    for number, (mark, end) in enumerate(zip(found, ends, strict=True)):
        text, markdown = script[mark.end() : end].strip("\n"), mark.group("kind") is not None
        if markdown:
            text = "\n".join(re.sub(r"^# ?", "", line) for line in text.splitlines())
        cell = {"cell_type": "markdown" if markdown else "code", "id": f"cell-{number}", "metadata": {}}
        cell |= {} if markdown else {"execution_count": None, "outputs": []}
        cells.append(cell | {"source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def written(script: str) -> str:
    """The notebook as its file holds it."""
    return json.dumps(notebook(script), indent=1, ensure_ascii=False) + "\n"


def scripts(folder: Path) -> list[Path]:
    """Scripts that are divided into cells; others are programs with arguments."""
    return [path for path in sorted(folder.glob("*.py")) if MARK.search(path.read_text())]


def stale(folder: Path) -> list[Path]:
    """Notebooks that are missing or are not those of their scripts, and notebooks without a script."""
    old = [one for one in scripts(folder) if not _is(one.with_suffix(".ipynb"), written(one.read_text()))]
    lonely = [one for one in sorted(folder.glob("*.ipynb")) if not one.with_suffix(".py").exists()]
    return [*(one.with_suffix(".ipynb") for one in old), *lonely]


def _is(file: Path, text: str) -> bool:
    return file.exists() and file.read_text() == text


if __name__ == "__main__":
    for path in scripts(FOLDER):
        path.with_suffix(".ipynb").write_text(written(path.read_text()))
        print(f"wrote examples/{path.stem}.ipynb")
