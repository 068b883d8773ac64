"""A short `make kill-test`, and that it would notice if something went wrong."""

import random
import subprocess
import sys

import pytest

from benchmarks import kills as script
from benchmarks.kills import differences, killed_run


def test_every_difference_is_named():
    assert differences({"a": b"1", "b": b"2"}, {"a": b"1", "b": b"2"}) == []
    assert differences({"a": b"1", "b": b"2"}, {"a": b"0", "c": b"2"}) == ["a", "b", "c"]


SAVES = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1], "checkpoints", "seeds-0-0")
folder.mkdir(parents=True, exist_ok=True)
(folder / f"update-{time.time_ns()}").touch()
time.sleep(60)
"""


@pytest.mark.parametrize(("code", "wrong"), [(SAVES, ""), ("import sys; sys.exit('lost')", "exit code 1: lost\n")])
def test_kills_are_counted_and_other_ends_are_failures(code, wrong, tmp_path, monkeypatch):
    """It is killed as often as allowed; the last time, when it may end, it has been mended."""
    begun = []

    def start(out, kind, *more):
        begun.append(more)
        code_now = code if len(begun) <= 3 else "pass"
        return subprocess.Popen([sys.executable, "-c", code_now, str(out)], stderr=subprocess.PIPE)

    monkeypatch.setattr(script, "start", start)
    count, said = killed_run(tmp_path, "a2c", 0.1 if not wrong else 60.0, 3, random.Random(0))
    assert (count, said) == (0 if wrong else 3, wrong)
    assert begun[0] == ("--resume",)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_training_killed_at_random_moments_gives_the_same_bytes(capsys):
    with pytest.raises(SystemExit) as ended:
        script.main(kills=12)
    said = capsys.readouterr().out
    assert ended.value.code == 0, said
    assert said.splitlines()[-1].startswith("12 kills (")
