"""Ctrl-C in Python: what was done is saved, and the advice is Python's."""

import os
import signal

import pytest

import evarl
from evarl.errors import InputError
from evarl.stopping import Stopped

TINY = {"environments": 2, "steps": 8, "updates": 9, "quiet": True, "agent": {"hidden_sizes": (4,)}}


def test_the_advice_is_that_of_python(tmp_path):
    def press(chunk):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stopped:
        evarl.train("navigation", out=tmp_path / "run", callbacks=[press], **TINY)
    assert isinstance(stopped.value, Stopped)
    told = f"stopped after update 1 of 9; resume with the same arguments and evarl.train(..., out='{tmp_path}/run', resume=True)"
    assert str(stopped.value) == told
    with pytest.raises(InputError, match=r"resume it with evarl.train\(..., resume=True\)$"):
        evarl.train("navigation", out=tmp_path / "run", **TINY)
    assert evarl.train("navigation", out=tmp_path / "run", resume=True, **TINY).metrics.num_rows == 9
