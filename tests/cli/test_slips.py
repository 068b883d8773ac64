"""Slips of new users: what is wrong is said first, and what to do."""

import json

import gymnasium
import numpy as np
import pytest

import evarl
from evarl import ope
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
    assert said(capsys, 2, "ope", "nope.csv", "--policy", "uniform").startswith(
        "evarl: nope.csv: no such file; must be"
    )


def test_an_argument_that_the_environment_does_not_take(capsys, tmp_path):
    told = said(capsys, 2, "train", HERE, "--make", "demnd=2", "--out", str(tmp_path / "run"), *TINY)
    assert told == "evarl: make: unknown 'demnd'; did you mean 'demand'? Known: demand"
    told = said(
        capsys, 2, "train", "gymnasium/CartPole-v1", "--make", "sutton_bary=true", "--out", str(tmp_path / "run")
    )
    assert told.startswith("evarl: make: unknown 'sutton_bary'; did you mean 'sutton_barto_reward'? Known: ")


def test_an_environment_in_place_of_its_class():
    with pytest.raises(
        InputError, match=r"^env: .*; this is an environment: pass the class, Shop, or a function that makes it$"
    ):
        evarl.train(env=Shop())


def test_a_metric_that_there_is_not(tmp_path):
    def show(chunk):
        assert chunk.get("retrun") is None
        assert "retrun" not in chunk
        return chunk["retrun"]

    with pytest.raises(
        KeyError, match=r"retrun: is not a metric of this run; must be one of actor_gradient_norm, .*return"
    ):
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


def test_a_log_without_the_action_0_does_not_tell_how_many_there_are(capsys, tmp_path):
    """One step each, a reward of 1 for the action 6 of 5 to 7."""
    rows = [f"{i},0.0,{5 + i % 3},{int(i % 3 == 1)},1,{np.log(1 / 3)}" for i in range(90)]
    file = tmp_path / "log.csv"
    file.write_text("\n".join(["episode,observation_0,action,reward,terminated,log_prob", *rows]))
    asked = ["ope", str(file), "--policy", "uniform", "--discount", "1", "--methods", "tis"]
    told = said(capsys, 2, *asked)
    assert told == (
        "evarl: first-action: is missing, and the log has the actions 5 to 7; must be given for the uniform policy: 5 if actions "
        "count from there (3 of them), 0 if lower ones were never taken (8)"
    )
    for given, value in (("5", 1 / 3), ("0", 1 / 8)):
        assert call([*asked, "--first-action", given, "--json"]) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])["estimates"]["tis"]["value"]
        assert found == pytest.approx(value)


class Diverging:
    """A method whose fit always diverges."""

    name, label, needs = "diverging", "diverging", ()

    def estimate(self, log, policy, settings):
        return ope.Estimate(value=1e9, bellman_error=1e6, warnings=("diverged: far",))


def test_an_estimate_that_diverged_has_no_numbers(capsys, tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("episode,observation_0,action,reward,terminated\n0,0.0,0,1,1\n1,0.0,1,1,1\n")
    ope.register(Diverging())
    try:
        assert call(["ope", str(file), "--policy", "uniform", "--discount", "1", "--methods", "diverging"]) == 0
    finally:
        ope.unregister("diverging")
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("diverging ")]
    assert set(row.split()[1:]) == {"diverged", "—"}
