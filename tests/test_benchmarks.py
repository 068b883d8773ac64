"""The harness of `make bench`, with workers that do nothing."""

import sys
from pathlib import Path

import pytest

from benchmarks.page import PAGE, marks
from benchmarks.race import Interrupted, Task, race
from benchmarks.report import sheets

WORKER = """
import sys
sys.path.insert(0, "benchmarks/peers")
import protocol
options = protocol.parse("does nothing", broken=0, cache="")
if options.broken:
    sys.exit("broken")
protocol.serve(lambda: (lambda: {"parts": {"collect": 0.5}}, 100, {"program_gib": 0.25}))
"""


def test_a_race_interleaves_repetitions_and_goes_on_without_those_that_fail(tmp_path: Path) -> None:
    command = (sys.executable, "-c", WORKER)
    tasks = {
        "environment only": Task(command, updates=2),
        "A2C": Task(command, updates=1),
        "A2C, parts": Task(command, updates=5, cold=False),
        "PPO": Task((*command, "--broken=1"), updates=1),
    }
    found = race("a world", tasks, repeats=3, logs=tmp_path)
    assert found["PPO"] == {"failed": "ended early; see a-world-PPO.log"}
    assert (tmp_path / "a-world-PPO.log").read_text() == "broken\n"
    alone = found["environment only"]
    assert len(alone["seconds"]) == 3
    assert {"cold_seconds", "compile_seconds", "warmup_seconds", "peak_gib", "cold_peak_gib"} < alone.keys()
    assert found["A2C, parts"]["parts"] == {"collect": [0.5] * 3}
    assert "cold_seconds" not in found["A2C, parts"]

    speeds, parts, costs = sheets({"a world": found})
    assert [row[1] for row in speeds.rows] == ["environment only", "A2C"]
    assert parts.rows[0][:3] == ("a world", "A2C", "100 (100–100)")
    assert [row[1] for row in costs.rows] == ["environment only", "A2C"]
    assert "| a world | A2C |" in speeds.markdown()


STOPPING = """
import json, os, signal, sys
print(json.dumps({"compile_seconds": 1.0, "steps": 100}), flush=True)
for number, _ in enumerate(sys.stdin):
    if number == 3 and "stop" in sys.argv:
        os.kill(os.getppid(), signal.SIGINT)
    print(json.dumps({"seconds": number}), flush=True)
"""


def test_what_all_programs_had_measured_is_kept_when_a_race_is_stopped(tmp_path: Path) -> None:
    """The second program stops the race in its third repetition, which the first has completed."""
    command = (sys.executable, "-c", STOPPING)
    tasks = {"environment only": Task(command, 1, cold=False), "A2C": Task((*command, "stop"), 1, cold=False)}
    with pytest.raises(Interrupted) as stopped:
        race("a world", tasks, repeats=1000, logs=tmp_path)
    assert [one["seconds"] for one in stopped.value.found.values()] == [[1, 2], [1, 2]]
    assert "of 2 interleaved repetitions" in sheets({"a world": stopped.value.found})[0].title


def test_the_page_on_speed_holds_what_was_measured() -> None:
    page, measured = PAGE.read_text(), marks()
    assert "bench" in measured
    for name, tables in measured.items():
        assert f"<!-- {name} -->\n{tables}\n<!-- end {name} -->" in page, f"{name}: run `make bench-page`"
