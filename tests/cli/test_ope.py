"""`evarl ope` and `evarl evaluate --ope`: what they print, what they keep, and what they refuse."""

import json
from pathlib import Path

import numpy as np
import pytest

import evarl
from evarl.cli.main import call
from tests.evaluation.tiny import train_once, train_tiny

SMALL = {"environments": 4, "steps": 60, "seeds": 2, "updates": 4}
FEW = ["--methods", "fqe", "pdis", "--fqe.steps", "200", "--fqe.hidden-sizes", "8", "--resamples", "50"]


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    out = tmp_path_factory.mktemp("logged") / "run"
    return str(train_once(evarl.with_settings(evarl.preset("navigation"), SMALL), out, log_megabytes=5).path)


def test_ope_of_every_seed(logged, capsys):
    assert call(["ope", logged, *FEW, "--range", "-1e9", "1e9", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads(Path(record["file"]).read_text())["seeds"] == record["seeds"]
    assert [seed["seed"] for seed in record["seeds"]] == [0, 1]
    for seed in record["seeds"]:
        assert seed["trajectories"] >= 16
        pdis, fqe = seed["estimates"]["pdis"], seed["estimates"]["fqe"]
        assert {"bernstein", "hoeffding"} <= pdis["intervals"].keys()
        assert ("t" in pdis["intervals"]) == (not any("no interval" in warning for warning in pdis["warnings"]))
        assert pdis["estimand"] == fqe["estimand"] != ""
        assert pdis["effective_sample_size"] > 1
        assert fqe["bellman_error"] > 0
        assert fqe["converged"] in (True, False)


def test_ope_prints_a_table(logged, capsys):
    assert call(["ope", logged, "--seeds", "1", *FEW]) == 0
    out = capsys.readouterr().out
    assert "seed 1:" in out
    assert "seed 0:" not in out
    assert "effective sample" in out
    assert "fqe, pdis: return of the policy over 50 steps" in out


@pytest.mark.slow
def test_evaluate_puts_them_beside_the_others(logged, capsys):
    few = [f"--log.{word[2:]}" if word.startswith("--") else word for word in FEW]
    assert call(["evaluate", logged, "--ope", *few, "--states", "4", "--rollouts", "4", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {(row["predictor"], row["queries"]) for row in record["rows"]}
    assert {("FQE", "start"), ("FQE", "visited"), ("PDIS", "start"), ("PDIS", "visited"), ("critic", "start")} <= rows
    assert record["policies"].keys() == {"critic", "FQE", "PDIS"}
    assert record["policies"]["FQE"]["policies"] == 2
    assert record["seeds"][0]["logged"]["estimates"]["pdis"]["rule"] == "neighbours"


def test_a_run_without_log_is_refused_in_one_line(tmp_path, capsys):
    out = str(tmp_path / "run")
    train_tiny(Path(out), beta=0.0, seeds=1)
    for command in (["ope", out], ["evaluate", out, "--ope"]):
        assert call(command) == 2
        assert (
            capsys.readouterr().err.splitlines()[-1].endswith("has no log of trajectories; train with --log-megabytes")
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--range", "1", "0"], "range: (1.0, 0.0) is not allowed"),
        (["--fqe.steps", "0"], "fqe.steps: 0 is not allowed"),
        (["--updates", "0"], "updates: 0 is not allowed"),
        (["--confidence", "2"], "confidence: 2.0 is not allowed"),
        (["--seeds", "7"], "seed: 7 is not one of this run's seeds"),
    ],
)
def test_bad_input(logged, capsys, arguments, message):
    assert call(["ope", logged, *arguments]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One log of two steps as CSV and NPZ, and a module of policies beside it."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(1)
    action = rng.integers(2, size=(200, 2))
    rows = ["episode,step,observation_0,action,reward,terminated,log_prob"]
    for i, pair in enumerate(action):
        rows += [f"{i},{t},{float(t)},{a},{float(a)},{int(t == 1)},{np.log(0.5)!r}" for t, a in enumerate(pair)]
    (folder / "log.csv").write_text("\n".join(rows).replace("np.float64(", "").replace(")", "") + "\n")
    flat = {"observations": np.tile([[0.0], [1.0]], (200, 1)), "actions": action.ravel()}
    flat |= {"rewards": action.ravel().astype(float), "terminals": np.tile([0, 1], 200)}
    np.savez(folder / "log.npz", **flat, **{"infos/action_log_probs": np.full(400, np.log(0.5))})
    (folder / "file_policies.py").write_text(
        "import numpy as np\n"
        "def chances(seen): return np.tile([0.25, 0.75], (len(seen), 1))\n"
        "def logarithms(seen, action): return np.log(np.where(action == 1, 0.75, 0.25))\n"
    )
    return folder


def test_logs_in_files(files, monkeypatch, capsys):
    """TIS by hand: the mean of (a₀ + γ a₁) Π π(a) / ½."""
    monkeypatch.chdir(files)
    more = ["--distribution", "--return-range", "0", "2", "--guaranteed", "--least-reward", "0", "--select", "window"]
    records = []
    for file, name in (("log.csv", "chances"), ("log.npz", "chances"), ("log.csv", "logarithms")):
        policy = ["--policy-import", f"file_policies:{name}", "--discount", "0.9", "--methods", "tis", "fqe-tabular"]
        assert call(["ope", file, *policy, *more, "--json"]) == 0
        records.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
        assert json.loads((files / f"{file}.ope.json").read_text())["estimates"] == records[-1]["estimates"]
    action = np.load(files / "log.npz")["actions"].reshape(200, 2)
    weights = np.where(action == 1, 1.5, 0.5).prod(axis=1)
    expected = (weights * (action @ [1.0, 0.9])).mean()
    for one in records:
        assert one["estimates"]["tis"]["value"] == pytest.approx(expected, rel=1e-12)
        assert 0 < one["guaranteed"]["value"] < 0.75 * 1.9  # the true value
        mean = one["distribution"]["rows"]["mean"]
        assert mean["value"] == pytest.approx((weights * (action @ [1.0, 0.9])).sum() / weights.sum(), rel=1e-9)
        assert mean["band"][0] < mean["value"] < mean["band"][1]
        assert one["selected"]["chosen"].startswith("window")
    for key in ("estimates", "distribution", "guaranteed", "selected"):
        assert records[0][key] == records[1][key], "the same log in another format"


def test_a_log_in_a_file_is_printed(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    assert (
        call(["ope", "log.csv", "--policy", "uniform", "--discount", "1", "--methods", "pdis", "--distribution"]) == 0
    )
    out = capsys.readouterr().out
    assert "uniform from log.csv: 200 trajectories, 400 steps" in out
    assert "pdis: return of the policy over 2 steps, discounted by 1" in out
    assert "quantile 0.5" in out


def test_a_run_as_the_policy_of_a_log_in_a_file(logged, tmp_path, capsys):
    """Its own log, saved to a file, gives what the run itself gives."""
    run = evarl.Run.load(logged)
    run.logged_data(1).save(tmp_path / "log.safetensors")
    assert (
        call(["ope", logged, "--methods", "pdis", "--seeds", "1", "--json", "--out", str(tmp_path / "out.json")]) == 0
    )
    expected = json.loads(capsys.readouterr().out.splitlines()[-1])["seeds"][0]["estimates"]["pdis"]["value"]
    given = ["--policy", logged, "--seeds", "1", "--discount", str(run.config.discount), "--methods", "pdis", "--json"]
    assert call(["ope", str(tmp_path / "log.safetensors"), *given]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["estimates"]["pdis"]["value"] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["log.csv"], "policy: is missing; must be given for a log in a file"),
        (["log.csv", "--policy", "uniform"], "discount: is missing; must be given for a log in a file, from 0 to 1"),
        (["log.csv", "--policy", "uniform", "--discount", "2"], "discount: 2.0 is not allowed; must be from 0 to 1"),
        (["log.csv", "--policy", "uniform", "--policy-sb3", "x.zip"], "policy and policy-sb3: only one of them can be given"),
        (["log.csv", "--policy", "nowhere", "--discount", "1"], "nowhere: holds no run"),
        (["log.csv", "--policy", "uniform", "--deterministic", "--discount", "1"], "deterministic: is allowed with --policy-sb3"),
        (["none.csv", "--policy", "uniform", "--discount", "1"], "none.csv: no such file"),
        (["nothing", "--policy", "uniform"], "nothing: is neither the directory of a run nor a log; a log must end in .csv"),
        (["log.csv", "--policy", "uniform", "--discount", "1", "--guaranteed", "--methods", "tis"], "least_return: None, least_"),
        (["log.csv", "--policy", "uniform", "--discount", "1", "--least-reward", "0"], "least-return and least-reward: are for"),
        (["log.csv", "--policy-sb3", "log.csv", "--discount", "1"], "log.csv: is not a file of Stable-Baselines3"),
        (["log.csv", "--policy-import", "file_policies:none", "--discount", "1"], "policy-import: 'file_policies:none' cannot"),
    ],
)  # fmt: skip
def test_files_and_options_that_are_refused_in_one_line(files, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(files)
    assert call(["ope", *arguments]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_options_of_files_are_refused_for_a_run(logged, capsys):
    assert call(["ope", logged, "--policy", "uniform"]) == 2
    assert "policy: is for logs in files" in capsys.readouterr().err


def test_the_part_of_the_log_is_said(tmp_path, capsys):
    out = str(tmp_path / "run")
    train_tiny(Path(out), beta=0.0, seeds=1, log_megabytes=0.02, log_from="both", horizon=10)
    few = ["--methods", "fqe-linear", "--resamples", "50"]
    counts = {}
    for flags, part, where in (
        ([], "all", "from a sample of all of training"),
        (["--log-from", "recent"], "recent", "from the last updates of training"),
        (["--updates", "1"], "recent", "from the last updates of training"),
    ):
        assert call(["ope", out, *few, *flags]) == 0
        assert where in capsys.readouterr().out
        record = json.loads((Path(out) / "ope.json").read_text())
        assert record["log_from"] == record["seeds"][0]["part"] == part
        counts[" ".join(flags)] = record["seeds"][0]["trajectories"]
    assert len(set(counts.values())) == 3
    assert call(["ope", out, *few, "--log-from", "all", "--updates", "1"]) == 2
    assert "updates: 1 is not allowed for a log of the whole training" in capsys.readouterr().err


def test_a_log_in_a_file_has_no_parts(logged, tmp_path, capsys):
    evarl.load(logged).logged_data(1).save(tmp_path / "log.safetensors")
    command = ["ope", str(tmp_path / "log.safetensors"), "--policy", logged, "--discount", "0.9", "--log-from", "all"]
    assert call(command) == 2
    assert "log-from: is for runs, and" in capsys.readouterr().err
