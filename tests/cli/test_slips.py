"""Slips of new users: what is wrong is said first, and what to do."""

import gymnasium
import numpy as np
import pytest

import evarl
from evarl.cli.main import call
from evarl.errors import InputError
from tests.evaluation.tiny import train_tiny

TINY = ["--environments", "2", "--steps", "16", "--updates", "2", "--agent.hidden-sizes", "8", "--quiet"]
HERE = "gymnasium/tests.cli.test_slips:Shop"


class Shop(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, demand: float = 1.0):
        self.demand = demand

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), self.demand, True, False, {}


def said(capsys, code: int, *arguments: str) -> str:
    assert call([*arguments]) == code
    return capsys.readouterr().err.splitlines()[-1]


def test_a_log_that_is_not_there(capsys):
    assert said(capsys, 2, "ope", "nope.csv", "--policy", "uniform").startswith("evarl: nope.csv: no such file; must be")


def test_an_argument_that_the_environment_does_not_take(capsys, tmp_path):
    told = said(capsys, 2, "train", HERE, "--make", "demnd=2", "--out", str(tmp_path / "run"), *TINY)
    assert told == "evarl: make: unknown 'demnd'; did you mean 'demand'? Known: demand"
    told = said(capsys, 2, "train", "gymnasium/CartPole-v1", "--make", "sutton_bary=true", "--out", str(tmp_path / "run"))
    assert told.startswith("evarl: make: unknown 'sutton_bary'; did you mean 'sutton_barto_reward'? Known: ")


def test_an_environment_in_place_of_its_class():
    with pytest.raises(InputError, match="^env: .*; this is an environment: pass the class, Shop, or a function that makes it$"):
        evarl.train(env=Shop())


def test_a_metric_that_there_is_not(tmp_path):
    def show(chunk):
        assert chunk.get("retrun") is None
        assert "retrun" not in chunk
        return chunk["retrun"]

    with pytest.raises(KeyError, match="retrun: is not a metric of this run; must be one of actor_gradient_norm, .*return"):
        evarl.train(
            "navigation", environments=2, steps=8, updates=2, callbacks=[show], out=tmp_path / "run", quiet=True
        )


def test_a_run_to_be_resumed_that_is_not_there(capsys, tmp_path):
    out = str(tmp_path / "nope")
    assert call(["train", "navigation", *TINY[:-1], "--resume", "--out", out]) == 0
    assert f"{out}: holds no run to be resumed, so a new one is begun" in capsys.readouterr().err


def test_curves_take_allowed_modules_as_other_commands_do(capsys, tmp_path):
    run = train_tiny(tmp_path / "run")
    assert call(["plot", str(run.path), "--allow-module", "tests.cli.test_slips"]) == 0


def test_the_ledger_is_no_certificate(capsys, tmp_path):
    run = train_tiny(tmp_path / "run")
    issued = evarl.certify(run, evarl.Terms(rollouts=20))
    assert evarl.issue_certificate is evarl.certify
    files = sorted(map(str, (run.path / "certificates").glob("*.json")))
    assert len(files) == 2
    assert call(["verify", *files, "--files-only"]) == 0
    told = capsys.readouterr()
    assert "note: ledger.json is the ledger of the certificates beside it, and is left out" in told.err
    assert told.out.startswith("verified (no rollouts were made")
    assert call(["verify", str(issued.path), str(issued.path), "--files-only"]) == 0
    assert capsys.readouterr().out.count(f"{issued.path}:\nverified") == 2
    ledger = str(run.path / "certificates" / "ledger.json")
    told = said(capsys, 2, "verify", ledger)
    assert told == f"evarl: {ledger}: is the ledger of the certificates beside it; must be one of these"
