"""What the documents say can be done is done here: every Python block runs, and every `evarl` command of the README."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list:
    found = []
    for page in PAGES:
        for number, code in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)):
            marks = [pytest.mark.slow] if (language, page.name) == ("sh", "ope.md") else []
            found.append(pytest.param(code, id=f"{page.name}-{number}", marks=marks))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {})
    assert "import" in code


@pytest.mark.parametrize("code", blocks("sh"))
def test_commands_run(code, tmp_path):
    makefile = (ROOT / "Makefile").read_text()
    for line in filter(None, (line.split("#")[0].strip() for line in code.splitlines())):
        program, *arguments = line.split()
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), line
            continue
        assert program == "evarl", line
        command = [sys.executable, "-c", "from evarl.cli.main import main; main()", *arguments]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert result.returncode == 0, result.stderr
