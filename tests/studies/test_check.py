"""Checks of stored results: what is chosen, which comparison is made, and that a changed number is noticed."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

from evarl.cli.main import call
from evarl.errors import InputError
from evarl.runs.provenance import machine, source, versions
from evarl.studies import check as module
from evarl.studies.catalogue import study
from evarl.studies.check import alone_job, check, choose, differs, prediction_interval
from evarl.studies.jobs import Job, Store
from evarl.studies.local import xla_flags
from evarl.studies.scales import SMOKE
from tests.studies.test_catalogue import trained
from tests.studies.test_jobs import quick

HERE = {"machine": machine(), "versions": versions(), "source": source(), "seconds": 1.0, "sittings": 1}


def training(first, seeds=2) -> Job:
    changes = {"world": "navigation", "beta": 0.05, "seed": first, "seeds": seeds}
    return Job(
        f"navigation-seeds-{first}-{first + seeds - 1}", "train", {"changes": changes, "methods": []}, {"part": quick()}
    )


@pytest.fixture
def condition(tmp_path):
    """Three finished jobs of two seeds each."""
    store, jobs = Store(tmp_path / "store"), [training(first) for first in (0, 2, 4)]
    for job in jobs:
        store.keep(job, HERE | {"result": trained(job, {}, -4.0)})
    store.keep(quick(), HERE | {"result": {"kept": True}})
    return jobs, store


class Rerun:
    """Runs nothing: keeps what a job would find, changed by a function of it."""

    def __init__(self, change=lambda result: result):
        self.change, self.jobs, self.cores = change, [], []

    def __call__(self, job, store, cores):
        self.cores.append(cores)
        assert store.result(quick()) == {"kept": True}, "what it needs is there"
        self.jobs.append(job)
        store.keep(job, {"result": self.change(trained(job, {}, -4.0))})


def test_on_the_same_machine_the_whole_group_must_have_the_same_bits(condition, tmp_path):
    jobs, store = condition
    run = Rerun()
    (found,) = check(jobs, jobs[1], [3], store, tmp_path / "new", run)
    assert (found.bits, found.agrees, found.seed) == (True, True, 3)
    assert [job.name for job in run.jobs] == [jobs[1].name]
    assert run.cores == [machine()["cores"]], "as when it was computed: threads add up in another order"
    assert {one.what for one in found.numbers} == {"return"} | {
        f"MAE of the {name}, {kind} states" for name in ("evaluator", "critic") for kind in ("start", "visited")
    }


def test_any_other_bit_is_noticed(condition, tmp_path):
    jobs, store = condition

    def changed(result):
        asked = result["seeds"][1]["queries"]["start"]
        asked["truth"] = [*asked["truth"][:3], float(np.nextafter(asked["truth"][3], 9))]
        return result

    first, second = check(jobs, jobs[1], [2, 3], store, tmp_path / "new", Rerun(changed))
    assert (first.agrees, second.agrees) == (True, False)
    assert all(one.agrees for one in second.numbers), "it is none of the numbers that are shown"


@pytest.mark.parametrize(("shift", "agrees"), [(0.01, True), (5.0, False)])
def test_elsewhere_a_seed_alone_must_lie_in_the_spread(condition, tmp_path, monkeypatch, shift, agrees):
    jobs, store = condition
    monkeypatch.setattr(module, "machine", lambda: {"processor": "another"})

    def changed(result):
        result["seeds"][0]["return"] += shift
        return result

    run = Rerun(changed)
    (found,) = check(jobs, jobs[0], [1], store, tmp_path / "new", run)
    assert (found.bits, found.agrees) == (False, agrees)
    assert found.why.startswith("it was computed on another machine")
    assert "6 stored seeds" in found.why
    (job,) = run.jobs
    assert job.name == alone_job(jobs[0], 1).name
    assert (job.settings["changes"]["seed"], job.settings["changes"]["seeds"]) == (1, 1)
    values = [row["return"] for one in jobs for row in store.result(one)["seeds"]]
    t = stats.t.ppf(1 - 0.01 / 5 / 2, 5)  # five numbers share 1 %
    half = t * np.std(values, ddof=1) * (1 + 1 / 6) ** 0.5
    assert found.numbers[0].interval == pytest.approx((np.mean(values) - half, np.mean(values) + half))


def test_two_seeds_have_no_spread(condition, tmp_path, monkeypatch):
    jobs, store = condition
    monkeypatch.setattr(module, "machine", lambda: {})
    with pytest.raises(InputError, match="2 stored seeds have no spread to compare with"):
        check(jobs[:1], jobs[0], [0], store, tmp_path / "new", Rerun())


def test_what_must_be_the_same_for_bits_to_be(monkeypatch):
    assert differs(HERE) is None
    assert differs(HERE | {"machine": {}}) == "it was computed on another machine"
    fewer, more = ({"machine": machine() | {"cores": machine()["cores"] + by}} for by in (-1, 1))
    assert differs(HERE | fewer) is None, "a process can be confined to fewer cores"
    assert differs(HERE | more) == "it was computed on another machine"
    assert differs(HERE | {"versions": {}}) == "it was computed with other versions"
    assert differs(HERE | {"source": "0"}) == "it was computed with another source"
    assert differs(HERE | {"xla_flags": {"--other": "1"}}) == "it was computed with other XLA_FLAGS"
    old = {name: value for name, value in HERE.items() if name != "source"}  # records had a commit only
    for kept, here, same in (
        ("a", "a", True),
        ("a", "b", False),
        ("a+changes", "a+changes", False),
        (None, None, False),
    ):
        monkeypatch.setattr(module, "commit", lambda here=here: here)
        assert (differs(old | {"commit": kept}) is None) is same


def test_of_xla_flags_the_last_value_counts(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--a=1 --b --a=2")
    assert xla_flags() == {"--a": "2", "--b": ""}
    monkeypatch.setenv("XLA_FLAGS", "--b --a=2 --b")
    assert xla_flags() == {"--a": "2", "--b": ""}
    monkeypatch.delenv("XLA_FLAGS")
    assert xla_flags() == {}


def test_the_choice_follows_its_seed_and_takes_finished_jobs_only(condition):
    jobs, store = condition
    unfinished = training(6)
    chosen = [choose([*jobs, unfinished], store, seed, 1) for seed in range(40)]
    assert {job.name for _, job, _ in chosen} == {job.name for job in jobs}
    assert {seeds[0] for *_, seeds in chosen} == set(range(6))
    assert choose(jobs, store, 7, 1) == choose(jobs, store, 7, 1)
    assert all(len(group) == 3 for group, *_ in chosen)
    with pytest.raises(InputError, match="seeds-checked: 3 is not allowed"):
        choose(jobs, store, 0, 3)
    with pytest.raises(InputError, match="no training job of this study is finished"):
        choose([unfinished], store, 0, 1)


def test_the_prediction_interval_holds_the_next_number_as_often():
    rng, trials = np.random.default_rng(0), 4000
    x = rng.normal(3.0, 2.0, size=(trials, 5))
    inside = [low <= x[i, 4] <= high for i in range(trials) for low, high in [prediction_interval(list(x[i, :4]), 0.9)]]
    assert abs(np.mean(inside) - 0.9) < 4 * (0.9 * 0.1 / trials) ** 0.5


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--plan", "--check"], "check: is not allowed with --plan"),
        (["--check", "--seeds-checked", "0"], "seeds-checked: 0 is not allowed"),
        (["--check", "--random-seed", "-1"], "random-seed: -1 is not allowed"),
        (["--check"], "check: no training job of this study is finished"),
    ],
)
def test_bad_arguments_get_one_line(arguments, line, capsys, tmp_path):
    assert call(["reproduce", "mismatch", "--out", str(tmp_path), *arguments]) == 2
    assert line in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_result_is_confirmed_and_a_changed_one_is_not(tmp_path, capsys):
    """At the scale smoke, with the command; the changed number has a fitting checksum."""
    command = ["reproduce", "mismatch", "--scale", "smoke", "--workers", "1", "--out", str(tmp_path)]
    assert call(command) == 0
    capsys.readouterr()
    checking = [*command, "--check", "--random-seed", "3", "--json"]
    assert call(checking) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["checked"][0]["bits"]
    assert told["checked"][0]["equal"]
    store = Store(tmp_path)
    (job,) = [one for one in study("mismatch").jobs(SMOKE) if one.name == told["job"]]
    record = store.record(job)
    for row in record["result"]["seeds"]:
        row["return"] += 1e-6
    store.keep(job, record)
    assert call(checking) == 1
    assert not json.loads(capsys.readouterr().out)["checked"][0]["agrees"]
    assert call([*checking[:-1], "--seeds-checked", "2"]) == 1
    assert capsys.readouterr().out.count("NOT CONFIRMED") == 2


def test_a_number_that_is_missing_does_not_agree():
    one = module.Compared("x", 1.0, None, (0.0, 2.0))
    assert not one.agrees
    assert dataclasses.replace(one, again=2.0).agrees
