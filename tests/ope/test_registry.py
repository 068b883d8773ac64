"""An estimator added through public names alone, and what the registry refuses."""

import json
import subprocess
import sys
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl import ope
from evarl.cli.main import call
from evarl.errors import InputError
from tests.evaluation.tiny import train_once


class MeanReturn:
    """The mean discounted return of the log: the value of the behaviour policy, whatever the policy."""

    name, label, needs = "mean-return", "mean return", ()

    def estimate(self, log: ope.Log, policy: ope.TargetPolicy, settings: ope.Settings) -> ope.Estimate:
        data = log.data
        returns = np.where(data.mask, data.reward, 0.0) @ log.discount ** np.arange(data.length)
        value = float(returns.mean())
        return ope.Estimate(
            value=value,
            state_values=None if log.states is None else np.full(len(log.states), value),
            standard_error=float(returns.std(ddof=1) / len(returns) ** 0.5),
        )


class FewWeights(MeanReturn):
    """One that says that it rests on one trajectory."""

    name, label, needs = "few", "few weights", ("log_prob",)

    def estimate(self, log, policy, settings):
        ratio = float(np.exp(np.asarray(log.log_ratio(policy))).mean())
        return ope.Estimate(value=ratio, effective_sample_size=1.0)


@pytest.fixture
def registered():
    for estimator in (MeanReturn(), FewWeights()):
        ope.register(estimator)
    yield
    for name in ("mean-return", "few"):
        ope.unregister(name)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("logged") / "run"
    small = {"environments": 4, "steps": 60, "seeds": 2, "updates": 4}
    return train_once(evarl.with_settings(evarl.preset("navigation"), small), out, log_megabytes=5)


def coin_log(**changes) -> ope.LoggedData:
    action = np.random.default_rng(0).integers(2, size=(50, 3))
    fields = {
        "observation": np.zeros((50, 3, 1)),
        "action": action,
        "reward": action.astype(float),
        "log_prob": np.full((50, 3), np.log(0.5)),
        "final_observation": np.zeros((50, 1)),
    }
    return ope.LoggedData.from_arrays(**fields | changes)


COIN = ope.TargetPolicy(
    log_prob=lambda observation, action: jnp.full(len(action), jnp.log(0.5)),
    probabilities=lambda observation: jnp.full((len(observation), 2), 0.5),
    sample=lambda key, observation: jnp.ones(len(observation), int),
    mode=lambda observation: jnp.ones(len(observation), int),
)


def test_in_python(registered):
    data = coin_log()
    found = ope.estimate(ope.Log(data, 0.5, states=np.zeros((2, 1))), COIN, methods=("mean-return", "tis"))
    expected = float((data.reward @ 0.5 ** np.arange(3)).mean())
    assert (found["mean-return"].method, found["mean-return"].rule) == ("mean-return", "pooled")
    assert found["mean-return"].value == pytest.approx(expected) == found["tis"].value
    assert found["mean-return"].state_values.tolist() == [found["mean-return"].value] * 2


def test_few_weights_are_warned_of(registered):
    with pytest.warns(ope.CollapsedWeights, match="few: the weights have collapsed: effective sample size 1.0 of 50"):
        found = ope.estimate(ope.Log(coin_log(), 0.5), COIN, methods=("few",))
    assert found["few"].value == pytest.approx(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ope.estimate(ope.Log(coin_log(), 0.5), COIN, ope.Settings(warn_below=0.0), ("few",))


def test_on_the_command_line(registered, run, capsys):
    assert call(["ope", str(run.path), "--methods", "mean-return", "pdis", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    for seed in record["seeds"]:
        assert seed["estimates"].keys() == {"mean-return", "pdis"}
        assert seed["estimates"]["mean-return"]["rule"] == "neighbours"
    assert call(["ope", str(run.path), "--methods", "mean-return"]) == 0
    assert "mean-return" in capsys.readouterr().out


def test_in_an_evaluation(registered, run):
    found = evarl.evaluate(run, rollouts=2, states=2, ope=ope.LogSettings(methods=("mean-return", "pdis")))
    start = found.row("mean return", "start")
    assert start.mae.mean > 0
    assert found.policies.keys() >= {"mean return", "PDIS"}


def test_names_that_are_not_registered(run, capsys):
    with pytest.raises(InputError, match="method: unknown 'mean-return'"):
        ope.estimate(ope.Log(coin_log(), 0.5), COIN, methods=("mean-return",))
    with pytest.raises(InputError, match="method: unknown 'pdsi'; did you mean 'pdis'"):
        evarl.evaluate(run, ope=ope.LogSettings(methods=("pdsi",)))
    for arguments in (["ope", str(run.path), "--methods"], ["evaluate", str(run.path), "--ope", "--log.methods"]):
        assert call([*arguments, "pdsi"]) == 2
        assert "method: unknown 'pdsi'; did you mean 'pdis'?" in capsys.readouterr().err.splitlines()[-1]


def test_what_needs_probabilities_is_refused_without(registered):
    log = ope.Log(coin_log(log_prob=None), 0.5)
    assert "mean-return" in ope.estimate(log, COIN, methods=("mean-return",))
    with pytest.raises(InputError, match="log_prob: is missing in the log; few requires it"):
        ope.estimate(log, COIN, methods=("few",))


def test_values_of_states_are_checked(registered):
    log = ope.Log(coin_log(), 0.5, states=np.zeros((2, 1)))
    with pytest.raises(InputError, match=r"state_values: have shape None, by few; must be \(2,\)"):
        ope.estimate(log, COIN, methods=("few",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Mine"}, "name: 'Mine' is not allowed; must be lower-case letters"),
        ({"name": "dr"}, "name: dr or its label 'mean return' is registered already"),
        ({"label": "DR"}, "name: mean-return or its label 'DR' is registered already"),
        ({"needs": ("fqee",)}, "needs: unknown 'fqee'; did you mean 'fqe'?"),
    ],
)
def test_what_cannot_be_registered(changes, message):
    estimator = MeanReturn()
    for name, value in changes.items():
        setattr(estimator, name, value)
    with pytest.raises(InputError) as caught:
        ope.register(estimator)
    assert str(caught.value).startswith(message)
    assert "mean-return" not in ope.estimators()


def test_names_and_help_need_no_jax():
    code = (
        "import sys\n"
        "from evarl import ope\n"
        "from evarl.cli.main import call\n"
        "assert ope.estimators()['magic'].label == 'MAGIC'\n"
        "try:\n    call(['ope', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert call(['ope', 'nowhere', '--methods', 'pdsi']) == 2\n"
        "assert 'jax' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "fqe-greedy-huber" in done.stdout
