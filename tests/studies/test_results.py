"""What results say of made-up numbers: the right claims hold, fail or stay open, and nothing missing goes unsaid."""

import dataclasses

import numpy as np
import pytest
from matplotlib.figure import Figure

from evarl.cli.main import call
from evarl.errors import InputError
from evarl.ope.configuration import LABELS
from evarl.studies.assemble import findings
from evarl.studies.jobs import Store, with_needs
from evarl.studies.results import NAMES, result
from evarl.studies.scales import LAPTOP, PAPER, SMOKE, with_seeds
from evarl.studies.write import write_findings

CONTROLS = ("evaluator, Ξ zeroed", "evaluator, Ξ shuffled", "critic", "last batch's mean")


@pytest.fixture(autouse=True)
def unsaved_pictures(monkeypatch):
    """Everything is drawn, but not laid out and saved, which takes most of the time and is seen elsewhere."""

    def rendered(name, size, draw):
        draw(Figure(figsize=size))
        return b"png", b"<svg/>"

    monkeypatch.setattr("evarl.studies.drawing.rendered", rendered)


def trained(job, errors, value):
    """The result of a training job, with given mean absolute errors and return."""
    changes = job.settings["changes"]
    rng = np.random.default_rng(changes["seed"])
    points = [float(x) for x in range(4)]
    names = [*CONTROLS, *(LABELS[method] for method in job.settings["methods"])]
    rows = []
    for seed in range(changes["seed"], changes["seed"] + changes["seeds"]):
        wobble = 0.01 * float(rng.normal())
        scores = {
            name: {"mae": errors.get(name, 2.0) + wobble * (1 + number), "mse": 1.0, "bias": 0.0, "rank": None}
            for number, name in enumerate(("evaluator", *names))
        }
        asked = {"scores": scores, "truth": points, "standard_error": points, "predictions": {"evaluator": points}}
        rows.append(
            {
                "seed": seed,
                "return": value + wobble,
                "return_undiscounted": value + wobble,
                "queries": {"start": asked, "visited": asked},
            }
        )
    curve = [[1.0, 2.0, None, 4.0]] * changes["seeds"]
    return {
        "seeds": rows,
        "curves": {"steps": [1, 2, 3, 4], "return": curve, "evaluation_error_fresh": curve},
        "training": {"seconds": 1.0},
    }


def keep(store, job, value):
    about = {"seconds": 60.0, "sittings": 1, "peak_memory_gib": 1.0, "machine": {}, "versions": {}, "commit": None}
    if job.task in ("assessment", "pretrain"):
        store.file(job).parent.mkdir(parents=True, exist_ok=True)
        store.file(job).touch()
    store.keep(job, about | {"result": value})


def filled(folder, chosen, scale, errors=lambda job: {}, value=lambda job: 1.0, leave_out=()):
    """A store in which all jobs of a result are finished."""
    store = Store(folder)
    for job in with_needs(chosen.jobs(scale)):
        if job.name in leave_out:
            continue
        if job.task == "train":
            keep(store, job, trained(job, errors(job), value(job)))
        elif job.task == "assessment":
            world = job.settings["changes"]["world"]
            shape = (5, 10, 10, 6) if "gymnax" in world else (4, 2)
            seen = np.random.default_rng(0).integers(0, 2, shape)
            keep(store, job, {"world": world, "channels": [f"c{i}" for i in range(6)], "observations": seen.tolist()})
        else:
            keep(store, job, {})
    return store


def verdict_of(found, *words):
    matching = [check for check in found.checks if all(word in check.claim for word in words)]
    assert matching, [check.claim for check in found.checks]
    assert len({check.verdict for check in matching}) == 1, matching
    return matching[0].verdict


def test_evaluator_below_or_above_the_baselines(tmp_path):
    chosen = result("mismatch")
    good = filled(tmp_path / "good", chosen, PAPER, lambda job: {"evaluator": 1.0}, lambda job: -4.0)
    found = findings(chosen, PAPER, good, {})
    assert verdict_of(found, "below every OPE baseline", "EvA-RL policy") == "holds"
    assert verdict_of(found, "below that of the critic") == "holds"
    assert verdict_of(found, "at least the paper's") == "holds"
    assert verdict_of(found, "passive") == "undecided"
    # one sound baseline is better: the claim as the paper ran it stays, the other falls
    mixed = filled(tmp_path / "mixed", chosen, PAPER, lambda job: {"evaluator": 1.0, "FQE": 0.5}, lambda job: -6.0)
    found = findings(chosen, PAPER, mixed, {})
    assert verdict_of(found, "(FQE: greedy, Huber)", "EvA-RL policy") == "holds"
    assert verdict_of(found, "(FQE: sound)", "EvA-RL policy") == "does not hold"
    assert verdict_of(found, "at least the paper's") == "does not hold"


def test_tradeoff_of_frozen_and_colearned_evaluators(tmp_path):
    chosen = result("tradeoff")

    def value(job):
        changes = job.settings["changes"]
        return 10.0 - 20.0 * changes["beta"] * (changes["evaluator_mode"] == "frozen")

    def errors(job):
        changes = job.settings["changes"]
        return {"evaluator": 3.0 - 10 * changes["beta"] if changes["evaluator_mode"] == "frozen" else 1.0}

    found = findings(chosen, LAPTOP, filled(tmp_path, chosen, LAPTOP, errors, value), {})
    assert verdict_of(found, "frozen evaluator: return non-increasing") == "holds"
    assert verdict_of(found, "frozen evaluator: error non-increasing") == "holds"
    assert verdict_of(found, "close to the baseline") == "holds"
    assert verdict_of(found, "more accurate than the frozen one") == "holds"
    rising = filled(tmp_path / "rising", chosen, LAPTOP, errors, lambda job: 20 - value(job))
    assert verdict_of(findings(chosen, LAPTOP, rising, {}), "return non-increasing") == "does not hold"
    normalised = found.tables[0]
    ratios = {row[1]: row[3].mean for row in normalised.rows if row[0] == "Asterix"}
    assert ratios["frozen evaluator, β = 0.1"] == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_finished_is_no_crash_and_is_said(tmp_path, name):
    chosen = result(name)
    found = findings(chosen, SMOKE, Store(tmp_path), {})
    assert all(check.verdict == "undecided" for check in found.checks)
    for job in with_needs(chosen.jobs(SMOKE)):
        assert any(job.name in note for note in found.notes)


def test_a_failed_job_is_named_and_the_others_count(tmp_path):
    chosen = result("tradeoff")
    failed = next(job for job in chosen.jobs(LAPTOP) if job.label.startswith("freeway-frozen-0.1"))
    store = filled(tmp_path, chosen, LAPTOP, leave_out=[failed.name])
    found = findings(chosen, LAPTOP, store, {failed.name: "out of memory"})
    assert any(failed.name in note and "out of memory" in note for note in found.notes)
    assert len(found.tables[0].rows) == 3 * 6 - 1
    assert verdict_of(found, "Freeway, frozen evaluator: return non-increasing") == "undecided"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("tabular", "scenarios")])
def test_controls_stand_in_every_table_of_errors(tmp_path, name):
    chosen = result(name)
    found = findings(chosen, LAPTOP, filled(tmp_path, chosen, LAPTOP), {})
    for table in found.tables:
        if table.name.startswith("errors-"):
            assert {"critic", "evaluator, Ξ zeroed", "FQE", "FQE, greedy-huber"} <= set(table.columns)
            assert any("passive" in str(row[1]) for row in table.rows)
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert found.pictures
    assert found.about["configuration"]
    assert write_findings(found, tmp_path / "report").exists()


def test_results_share_their_jobs():
    """So that nothing that two results need is run twice."""
    games = {job.name for job in result("tradeoff").jobs(PAPER)}
    assert {job.name for job in result("pipelines").jobs(PAPER)} < games
    assert {job.name for job in result("ope-on-eva").jobs(PAPER)} < games
    assert games < {job.name for job in result("curves").jobs(PAPER)}


def test_the_papers_protocol():
    games = result("tradeoff").jobs(PAPER)
    assert sum(job.settings["changes"]["seeds"] for job in games) == 3 * 6 * 20
    mismatch = result("mismatch").jobs(PAPER)
    assert sum(job.settings["changes"]["seeds"] for job in mismatch) == 2 * 30
    assert with_seeds(PAPER, 7).brax.seeds == 7
    assert with_seeds(PAPER, None) is PAPER
    assert dataclasses.asdict(SMOKE)["trials"] == 20


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["tradeof"], "tradeof"),
        (["tabular", "--seeds", "0"], "seeds: 0 is not allowed"),
        (["tabular", "--workers", "0"], "workers: 0 is not allowed"),
        (["tabular", "--address", "auto"], "address: auto goes with --engine ray only"),
    ],
)
def test_bad_arguments_get_one_line(arguments, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(["reproduce", *arguments]) == 2
    assert line in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert call(["reproduce", "tabular", "--out", str(tmp_path / "file")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    with pytest.raises(InputError):
        Store(tmp_path / "file").check()
