"""Certificates of policies that this package did not train: what they state, and what a verifier must give."""

import json

import numpy as np
import pytest

import evarl
from evarl.certificates.certificate import load
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.evaluation.outside import outside_directory
from evarl.policies import from_numpy
from evarl.runs import OutsideRun, Run
from tests.evaluation.tiny import train_tiny

STEPS = 6
TERMS = evarl.Terms(rollouts=64)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two states; action 1 leads to the second, where every step is rewarded by 1. Nothing is random."""
    path = tmp_path_factory.mktemp("world") / "two.npz"
    transition = np.zeros((2, 2, 2))
    transition[:, 0, 0] = transition[:, 1, 1] = 1.0
    reward = np.zeros((2, 2))
    reward[1] = 1.0
    np.savez(path, transitions=transition, rewards=reward, start=np.array([1.0, 0.0]))
    return f"tabular/{path}"


def always(action, parameters=None):
    return from_numpy(lambda seen: np.full(len(seen), action), "actions", parameters, f"always {action}")


def test_a_certificate_states_policy_parameters_and_returns(world, tmp_path):
    """Always 1: the first step is not rewarded, the others are, and nothing is discounted."""
    run = outside_directory(tmp_path / "one", always(1, {"w": np.arange(3.0)}), world, STEPS)
    issued = evarl.issue_certificate(run, TERMS)
    certificate = issued.certificate
    assert set(certificate.evidence["returns"]) == {STEPS - 1.0}
    assert certificate.protocol.outside == "always 1"
    assert certificate.protocol.discount == 1.0
    assert certificate.conclusion.bound < STEPS - 1
    assert certificate.protocol.files.keys() == {"config.json", "policy/seed-0.safetensors"}
    assert "an outside policy (always 1)" in issued.html.read_text()
    found = evarl.verify_certificate(issued.path, reliance=evarl.Reliance(policy=always(1, {"w": np.arange(3.0)})))
    assert found.verified
    assert found.made == ["same", "fresh"]


def test_the_policy_is_given_anew_and_must_be_the_same(world, tmp_path):
    run = outside_directory(tmp_path / "one", always(1, {"w": np.arange(3.0)}), world, STEPS)
    issued = evarl.issue_certificate(run, TERMS)
    with pytest.raises(InputError, match=r"is about an outside policy, and files do not decide what is executed"):
        evarl.verify_certificate(issued.path)
    with pytest.raises(InputError, match=r"one: is the directory of another policy \(always 1, [0-9a-f]{12}…\)"):
        evarl.verify_certificate(issued.path, reliance=evarl.Reliance(policy=always(1, {"w": np.arange(3.0) + 1e-9})))
    with pytest.raises(InputError, match="is the directory of another policy"):
        outside_directory(tmp_path / "one", always(1))
    with pytest.raises(
        InputError, match=r"one: holds a policy with discount 1\.0, and discount 0\.5 is needed here; give"
    ):
        outside_directory(tmp_path / "one", always(1, {"w": np.arange(3.0)}), discount=0.5)


def test_changed_parameters_are_noticed(world, tmp_path):
    run = outside_directory(tmp_path / "one", always(0, {"w": np.zeros(3)}), world, STEPS)
    issued = evarl.issue_certificate(run, TERMS)
    other = outside_directory(tmp_path / "two", always(1, {"w": np.ones(3)}), world, STEPS)
    (run.path / "policy/seed-0.safetensors").write_bytes((other.path / "policy/seed-0.safetensors").read_bytes())
    found = evarl.verify_certificate(issued.path, reliance=evarl.Reliance(policy=always(1, {"w": np.ones(3)})))
    assert not found.verified
    assert "policy/seed-0.safetensors" in found.changed


def test_a_run_of_this_package_is_no_directory_for_others(tmp_path):
    run = train_tiny(tmp_path / "run")
    with pytest.raises(InputError, match="is a run that was trained here, with policies of its own"):
        OutsideRun.create(run.path, always(1), Run.load(run.path).config)


def test_a_policy_without_source_or_parameters_cannot_be_identified(world, tmp_path):
    policy = evarl.policies.OutsidePolicy(lambda seen: np.zeros(len(seen)), "actions", "nothing known")
    with pytest.raises(InputError, match="nothing known: cannot be identified"):
        outside_directory(tmp_path / "one", policy, world)
    assert not (tmp_path / "one").exists()


def test_the_command_line(world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "certified_policies.py").write_text(
        "import numpy as np\ndef one(seen): return np.ones(len(seen), int)\ndef zero(seen): return np.zeros(len(seen), int)\n"
    )
    given = ["--policy-import", "certified_policies:one"]
    effort = ["--rollouts", "64", "--json"]
    assert call(["certify", "one", *given, *effort]) == 2
    assert capsys.readouterr().err == (
        "evarl: world: is missing; must be that of the policy, such as gymnasium/CartPole-v1\n"
    )
    assert call(["certify", "one", *given, "--world", world, "--horizon", str(STEPS), *effort]) == 0
    record = json.loads(capsys.readouterr().out)
    certificate, _ = load(tmp_path / record["certificate"])
    assert certificate.protocol.outside == "function certified_policies:one (actions)"
    assert record["numbers"]["mean of the returns"] == STEPS - 1
    assert call(["verify", record["certificate"], *given]) == 0
    assert (
        call(["verify", record["certificate"], "--policy-import", "certified_policies:zero"]) == 2
    )  # of the same source
    assert "this one is function certified_policies:zero" in capsys.readouterr().err
    (tmp_path / "other_policies.py").write_text("import numpy as np\ndef one(seen): return np.zeros(len(seen), int)\n")
    assert call(["verify", record["certificate"], "--policy-import", "other_policies:one"]) == 2
    assert "is the directory of another policy" in capsys.readouterr().err
    assert call(["certify", "one", "--world", world, *effort]) == 2
    assert "world: is that of the run; may be given with --policy-sb3" in capsys.readouterr().err
