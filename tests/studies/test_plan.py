"""Plans: what is left, and how long it may take, from finished jobs whose times are known."""

import json
import re

import pytest

from evarl.cli.main import call
from evarl.runs.provenance import machine
from evarl.studies.catalogue import study
from evarl.studies.jobs import Job, Store
from evarl.studies.plan import UNKNOWN, estimate, known_timings, plan, size_of, total_hours
from evarl.studies.scales import FULL, LAPTOP


def training(label, world="gymnax/Asterix-MinAtar", preset="minatar", **changes) -> Job:
    settings = {
        "preset": preset,
        "changes": {"world": world, "beta": 0.1, "seed": 0, "seeds": 2, "updates": 10} | changes,
    }
    return Job(label, "train", settings | {"log_megabytes": 3})


def keep(store, job, total, sittings=1, where=None, **training):
    record = {"task": job.task, "settings": job.settings, "seconds": total, "sittings": sittings}
    result = {"training": training} if training else {}
    store.keep(job, record | {"machine": where or machine(), "result": result})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_an_estimate_by_hand(store):
    """2 seeds × 64 000 steps: 20 s of compilation, 128 s of training (1 ms a step), 6 s of evaluation of each seed."""
    keep(store, training("done"), 160.0, seconds=128.0, compile_seconds=20.0)
    job = training("new", seeds=5, seed=2, updates=100)
    assert size_of(job.task, job.settings).amount == 5 * 640_000
    found = estimate(job, known_timings(store))
    assert found.seconds == pytest.approx(20 + 3200 + 5 * 6)
    assert found.basis == "1 finished job of the same world and kind"
    (row,) = plan([job], store)
    assert (row.condition, row.jobs, row.seeds, row.which) == ("new", 1, 5, "2 to 6")
    assert (row.steps, row.disk_megabytes) == (640_000, 15.0)
    assert row.hours == pytest.approx(3250 / 3600)


def test_the_most_similar_jobs_count_and_the_middle_one_of_them(store):
    other = training("other", "gymnax/Freeway-MinAtar")
    keep(store, other, 128.0, seconds=128.0)
    assert estimate(training("new"), known_timings(store)).basis == "1 finished job of the same family"
    for number, seconds in enumerate((128.0, 256.0, 1280.0)):
        keep(store, training(f"passive-{number}", beta=0.0), seconds, seconds=seconds)
    found = estimate(training("new"), known_timings(store))
    assert (found.seconds, found.basis) == (pytest.approx(256.0), "3 finished jobs of the same world")
    ppo = training("ppo", **{"agent.algorithm": "ppo"})
    keep(store, ppo, 640.0, seconds=640.0)
    assert estimate(ppo, known_timings(store)).seconds == pytest.approx(640.0)
    robot = training("robot", "brax/ant", "brax")
    assert estimate(robot, known_timings(store)).seconds is None
    (row,) = plan([robot], store)
    assert (row.hours, row.basis) == (None, UNKNOWN)
    assert total_hours([row]) == (0, 1)


def test_another_network_tells_nothing(store):
    keep(store, training("done"), 128.0, seconds=128.0)
    listing = training("listing", **{"evaluator.network.kind": "listing"})
    assert estimate(listing, known_timings(store)).seconds is None
    keep(store, listing, 1280.0, seconds=1280.0)
    assert estimate(listing, known_timings(store)).seconds == pytest.approx(1280.0)


def test_an_interrupted_job_tells_how_long_training_takes_and_not_evaluation(store):
    keep(store, training("done"), 30.0, sittings=2, where={"processor": "another"}, seconds=128.0)
    found = estimate(training("new"), known_timings(store))
    assert found.seconds == pytest.approx(128.0)
    assert found.basis == "1 finished job of the same world and kind, on another machine, without evaluation"


def test_jobs_that_do_not_train_take_what_they_took(store):
    job = Job("tabular", "tabular", {"trials": 100})
    keep(store, job, 5.0)
    assert estimate(Job("tabular", "tabular", {"trials": 1000}), known_timings(store)).seconds == pytest.approx(50.0)
    (store.folder / "jobs" / "damaged-00000000.json").write_text("{}")
    assert len(known_timings(store)) == 1


def test_seeds_of_a_condition_stand_in_one_row_and_finished_ones_in_none(store):
    jobs = study("tradeoff").jobs(FULL)
    rows = {row.condition: row for row in plan(jobs, store)}
    one = rows["asterix-colearned-0.1"]
    assert (one.jobs, one.seeds, one.which, one.disk_megabytes) == (2, 10, "0 to 4, 5 to 9", 450.0)
    assert len(rows) == 3 * 6 + 3 + 3, "assessments and pre-trained evaluators too"
    first = next(job for job in jobs if job.label == "asterix-colearned-0.1-seeds-0-4")
    keep(store, first, 100.0, seconds=50.0)
    left = {row.condition: row for row in plan(jobs, store)}["asterix-colearned-0.1"]
    assert (left.jobs, left.which) == (1, "5 to 9")
    assert left.hours == pytest.approx(100 / 3600)


def test_the_command_lists_and_runs_nothing(tmp_path, capsys):
    arguments = ["reproduce", "tradeoff", "--scale", "full", "--out", str(tmp_path), "--plan"]
    assert call(arguments) == 0
    shown = capsys.readouterr().out
    assert "asterix-colearned-0.1" in shown
    assert UNKNOWN in shown
    assert "42 jobs, 0.0 hours one after the other, and those of 24 of 24 conditions, which are not known." in shown
    assert call([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["hours_unknown_of"] == len(told["planned"]) == 24
    assert not list(tmp_path.iterdir())


def test_the_plan_says_how_many_seeds_undecided_claims_need(tmp_path, capsys):
    """From the report in the folder, whose scale is told: that of another one may stand there as a pilot."""
    power = {"seeds": 3, "detectable": 1.0}
    many = (("far", "undecided", 1001), ("near", "undecided", 12), ("settled", "holds", 2), ("some", "undecided", 101))
    checks = [{"claim": claim, "verdict": verdict, "seeds_needed": needed} | power for claim, verdict, needed in many]
    checks.append({"claim": "not measured", "verdict": "undecided", "seeds": None, "seeds_needed": None})
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "checks.json").write_text(json.dumps({"scale": "laptop", "checks": checks}))
    arguments = ["reproduce", "pipelines", "--scale", "full", "--out", str(tmp_path), "--plan"]
    assert call(arguments) == 0
    lines = [re.split(r"\s{2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line[0] == "pipelines"] == [
        ["pipelines", "laptop", "3", "12", "near"],
        ["pipelines", "laptop", "3", "not feasible: 101", "some"],
        ["pipelines", "laptop", "3", "not feasible: more than 1000", "far"],
    ]
    assert lines[-1][0].startswith(f"3 undecided claims, by the reports in {tmp_path}; 1 need at most 100 seeds.")
    assert call([*arguments, "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)["claims"]
    assert [(one["claim"], one["seeds_needed"], one["feasible"]) for one in claims] == [
        ("far", 1001, False),
        ("near", 12, True),
        ("some", 101, False),
    ]


def test_only_some_jobs_are_planned(tmp_path, capsys):
    """Those whose names contain a word, with what they need; a word that is in no name is refused with the names."""
    arguments = ["reproduce", "tradeoff", "--scale", "full", "--out", str(tmp_path), "--plan", "--json", "--only"]
    assert call([*arguments, "freeway-frozen-0.1", "asterix-passive"]) == 0
    planned = {row["condition"]: row["jobs"] for row in json.loads(capsys.readouterr().out)["planned"]}
    needed = {"asterix-assessment": 1, "freeway-assessment": 1, "freeway-pretraining": 1}
    assert planned == {"freeway-frozen-0.1": 2, "asterix-passive-0": 2} | needed
    assert call([*arguments, "reacher"]) == 2
    assert "only: no job is called reacher; there are asterix-passive-0-seeds-0-4-" in capsys.readouterr().err


def test_nothing_left_is_said(tmp_path, capsys):
    (job,) = study("tabular").jobs(LAPTOP)
    keep(Store(tmp_path), job, 1.0)
    assert call(["reproduce", "tabular", "--out", str(tmp_path), "--plan"]) == 0
    assert capsys.readouterr().out == "nothing: all jobs are finished\n"
