"""As a user would: `evarl reproduce NAME --scale smoke`, stopped and gone on with, and a look at every page of it."""

import json
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import StringIO

import pytest

from evarl.cli.main import call
from evarl.studies.catalogue import PAPER_STUDIES
from tests.studies.browser import complaints, installed, requests, started

EVARL = [sys.executable, "-c", "from evarl.cli.main import main; main()"]
REPRODUCE = ["reproduce", "--scale", "smoke", "--workers", "1"]  # what a job has compiled, the next one reads


def begun(folder, command):
    """What is finished of a study that is stopped by Ctrl-C after its first job."""
    first = subprocess.Popen([*EVARL, *command], stderr=subprocess.PIPE, text=True)
    while not list(folder.glob("jobs/*.json")) and first.poll() is None:
        time.sleep(0.2)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate()
    assert first.returncode == 130, said
    assert "go on with the same command" in said
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob("jobs/*.json")}
    assert kept
    return kept


LONG = ("mismatch", "all")


@pytest.fixture(scope="module", params=["tabular", *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def smoke(request, tmp_path_factory):
    """A study of one job; or one of several, or all of them, stopped and gone on with."""
    folder = tmp_path_factory.mktemp("smoke")
    command = [*REPRODUCE, request.param, "--out", str(folder), "--json"]
    kept = begun(folder, command) if request.param in LONG else {}
    with redirect_stdout(StringIO()) as told:
        assert call(command) == 0
    for name, written in kept.items():
        assert (folder / "jobs" / name).stat().st_mtime_ns == written, f"{name} was run twice"
    names = tuple(PAPER_STUDIES) if request.param == "all" else (request.param,)
    return folder, names, json.loads(told.getvalue().splitlines()[-1])


def test_every_result_has_a_report_with_tables_figures_and_verdicts(smoke):
    folder, names, summary = smoke
    assert summary["failures"] == {}
    assert tuple(summary["verdicts"]) == names
    assert (folder / "index.html").exists() == (len(names) > 1)
    for name in names:
        report = folder / name
        for kind in ("report.html", "*.md", "*.csv", "*.png", "*.svg", "checks.json"):
            assert list(report.glob(kind)), (name, kind)
        text = (report / "report.html").read_text()
        assert "is missing: " not in text
        assert str(folder) not in text, "a machine's path"


def test_a_browser_shows_all_of_it_and_complains_of_nothing(smoke, tmp_path):
    installed()
    folder, names, _ = smoke
    with started(tmp_path / "profile") as browser:
        for name in names:
            browser.get((folder / name / "report.html").as_uri())
            for figure in browser.find_elements("css selector", "figure img"):
                assert figure.is_displayed(), name
                assert browser.execute_script("return arguments[0].naturalWidth", figure) > 100, name
            assert len(browser.find_elements("css selector", "figure img")) == len(list((folder / name).glob("*.png")))
            assert browser.find_elements("css selector", "th button"), name
        if len(names) > 1:
            browser.get((folder / "index.html").as_uri())
            assert len(browser.find_elements("css selector", "a[href$='/report.html']")) == len(names)
        assert complaints(browser) == []
        assert {address.partition(":")[0] for address in requests(browser)} <= {"file", "data"}
