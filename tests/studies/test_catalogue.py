"""What results say of made-up numbers: the right claims hold, fail or stay open, and nothing missing goes unsaid."""

import dataclasses
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from evarl.cli.main import call
from evarl.errors import InputError
from evarl.learning.presets import preset, studied
from evarl.ope.registry import LABELS
from evarl.studies.assemble import study_report
from evarl.studies.catalogue import PAPER_STUDIES, STUDIES, gradients, study
from evarl.studies.jobs import Store, with_needs
from evarl.studies.reports import CONTROL
from evarl.studies.scales import FULL, LAPTOP, PAPER, SCALES, SMOKE, with_seeds
from evarl.studies.write import write_report

CONTROLS = ("evaluator, Ξ zeroed", "evaluator, Ξ shuffled", "critic", "last batch's mean")


@pytest.fixture(autouse=True)
def unsaved_figures(monkeypatch):
    """Everything is drawn, but not laid out and saved, which takes most of the time and is seen elsewhere."""

    def rendered(name, size, draw):
        draw(Figure(figsize=size))
        return b"png", b"<svg/>"

    monkeypatch.setattr("evarl.studies.figures.rendered", rendered)


def trained(job, errors, value, everything=None):
    """The result of a training job, with given mean absolute errors and return; and errors of estimates from all of training."""
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
        if everything is not None:
            labels = [LABELS[method] for method in job.settings["methods"]]
            asked["scores_all"] = {name: scores[name] | {"mae": everything + wobble} for name in labels}
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


def filled(folder, chosen, scale, errors=lambda job: {}, value=lambda job: 1.0, leave_out=(), everything=None):
    """A store in which all jobs of a result are finished, with estimates from the last updates, and from all of training."""
    store = Store(folder)
    for job in with_needs(chosen.jobs(scale)):
        if job.name in leave_out:
            continue
        if job.task == "train":
            keep(store, job, trained(job, errors(job), value(job), everything))
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
    chosen = study("mismatch")
    good = filled(tmp_path / "good", chosen, PAPER, lambda job: {"evaluator": 1.0}, lambda job: -4.0)
    found = study_report(chosen, PAPER, good, {})
    assert verdict_of(found, "below every OPE baseline", "EvA-RL policy") == "holds"
    assert verdict_of(found, "below that of the critic") == "holds"
    assert verdict_of(found, "at least the paper's") == "holds"
    assert verdict_of(found, "passive") == "does not hold", "the made-up errors are equal"
    # one sound baseline is better: the claim as the paper ran it stays, the other falls
    mixed = filled(tmp_path / "mixed", chosen, PAPER, lambda job: {"evaluator": 1.0, "FQE": 0.5}, lambda job: -6.0)
    found = study_report(chosen, PAPER, mixed, {})
    assert verdict_of(found, "(FQE: greedy, Huber)", "EvA-RL policy") == "holds"
    assert verdict_of(found, "(FQE: sound)", "EvA-RL policy") == "does not hold"
    assert verdict_of(found, "at least the paper's") == "does not hold"


OFF_POLICY = ("ope-on-eva", "pipelines", "mismatch", "continuous")


@pytest.mark.parametrize("name", OFF_POLICY)
def test_older_results_without_estimates_from_all_of_training_have_one_claim(tmp_path, name):
    chosen = study(name)
    found = study_report(chosen, LAPTOP, filled(tmp_path, chosen, LAPTOP), {})
    claims = [check.claim for check in found.checks if "every OPE baseline" in check.claim]
    assert claims
    assert not [claim for claim in claims if CONTROL in claim or "log:" in claim]
    assert not [table.name for table in found.tables if table.name.startswith("log-")]
    assert "log" not in " ".join(table.note for table in found.tables)


@pytest.mark.parametrize("name", OFF_POLICY)
def test_all_of_training_is_the_papers_claim_and_the_last_updates_are_a_control(tmp_path, name):
    """Methods err by 3 from all of training and by 1 from the last updates; the evaluator by 2."""
    chosen = study(name)
    methods = dict.fromkeys(LABELS.values(), 1.0)
    store = filled(tmp_path, chosen, LAPTOP, lambda job: {"evaluator": 2.0} | methods, everything=3.0)
    found = study_report(chosen, LAPTOP, store, {})
    checks = [check for check in found.checks if "every OPE baseline" in check.claim]
    assert {(check.verdict, "log: all of training" in check.claim, CONTROL in check.claim) for check in checks} == {
        ("holds", True, False),
        ("does not hold", False, True),
    }
    assert len({check.claim for check in found.checks}) == len(found.checks)
    tables = {table.name: table for table in found.tables}
    for kind in ("start", "visited"):
        table = tables[f"log-{kind}"]
        parts = [row[2] for row in table.rows]
        assert parts == ["all of training", "last updates"] * (len(parts) // 2)
        for (index, row), part in zip(enumerate(table.rows), parts, strict=True):
            shown = dict(zip(table.columns, row, strict=True))
            assert shown["evaluator"].mean == pytest.approx(2.0, abs=0.1)
            assert shown["DR"].mean == pytest.approx({"all of training": 3.0, "last updates": 1.0}[part], abs=0.2)
            (best,) = [column for line, column in table.emphasised if line == index]
            assert (table.columns[best] == "evaluator") is (part == "all of training")
        assert "last updates" in tables[f"errors-{kind}"].note
    if "beside-the-paper" in tables:
        rows = [row for row in tables["beside-the-paper"].rows if re.search(r"(: |, )DR, log", row[1])]
        assert rows
        assert {(row[2] is not None, "log: all of training" in row[1]) for row in rows} == {(True, True)}
        assert [row[3].mean for row in rows] == pytest.approx([3.0] * len(rows), abs=0.1)
    assert write_report(found, tmp_path / "report").exists()


def test_only_seeds_with_estimates_from_all_of_training_are_in_the_papers_claim(tmp_path):
    """Where jobs are of different age: seeds 0 to 4 have both parts, the others the last updates only."""
    chosen, store = study("mismatch"), Store(tmp_path)
    for job in chosen.jobs(LAPTOP):
        result = trained(job, {"evaluator": 2.0}, -4.0, 3.0)
        for row in result["seeds"][5:]:
            row["queries"]["start"] = {key: x for key, x in row["queries"]["start"].items() if key != "scores_all"}
        keep(store, job, result)
    seeds = {
        ("log: all of training" in check.claim): check.seeds
        for check in study_report(chosen, LAPTOP, store, {}).checks
        if "every OPE baseline" in check.claim and "evaluator, methods" not in check.claim
    }
    assert seeds == {True: 5, False: 10}


def test_the_papers_evaluator_is_a_condition_of_its_own(tmp_path):
    """With the same assessment, start states and log as the others, and what `--paper` sets; in jobs of five seeds."""
    for scale in SCALES.values():
        jobs = study("mismatch").jobs(scale)
        printed = [job for job in jobs if "as-printed" in job.label]
        (other, *_) = [job for job in jobs if job.label.startswith("navigation-colearned")]
        assert sum(job.settings["changes"]["seeds"] for job in printed) == scale.navigation.seeds
        for job in printed:
            assert job.needs["assessment"].name == other.needs["assessment"].name
            assert job.settings["changes"]["seeds"] <= 5
            assert job.weight / job.settings["changes"]["seeds"] == 20 * scale.navigation.weight
            same = {key: x for key, x in job.settings.items() if key != "changes"}
            assert same == {key: other.settings[key] for key in same}
    changes = printed[0].settings["changes"]
    ours, papers = studied("navigation", changes), preset("navigation", paper=True)
    mode = {"evaluator_mode": "colearned", "seeds": 5, "beta": 0.05}
    assert ours == dataclasses.replace(papers, **mode)


@pytest.mark.parametrize(
    ("error", "value", "verdict"), [(1.65, -4.78, ("undecided", "holds")), (0.04, -2.0, 2 * ("does not hold",))]
)
def test_the_papers_evaluator_and_the_papers_numbers(tmp_path, error, value, verdict):
    chosen = study("mismatch")
    store = filled(tmp_path, chosen, LAPTOP, lambda job: {"evaluator": error}, lambda job: value)
    found = study_report(chosen, LAPTOP, store, {})
    about = "the paper's evaluator"
    assert verdict_of(found, about, "its MAE agrees with the paper's 1.65 ± 0.18") == verdict[0]
    assert verdict_of(found, about, "the return agrees with the paper's −4.78 ± 0.33") == verdict[1]
    assert verdict_of(found, about, "below every OPE baseline") == "holds"
    rows = [row for row in found.tables[0].rows if row[0] == f"EvA-RL, {about}"]
    assert {row[1]: row[2].mean for row in rows if row[2]} == {
        "MAE: evaluator": 1.65,
        "MAE: FQE, greedy-huber": 4.13,
        "MAE: PDIS": 1.97,
        "MAE: DR": 2.21,
        "return (undiscounted)": -4.78,
    }
    assert {row[0] for row in found.tables[1].rows} == {"Navigation", f"Navigation, {about}"}


def test_tradeoff_of_frozen_and_colearned_evaluators(tmp_path):
    chosen = study("tradeoff")

    def value(job):
        changes = job.settings["changes"]
        return 10.0 - 20.0 * changes["beta"] * (changes["evaluator_mode"] == "frozen")

    def errors(job):
        changes = job.settings["changes"]
        return {"evaluator": 3.0 - 10 * changes["beta"] if changes["evaluator_mode"] == "frozen" else 1.0}

    found = study_report(chosen, LAPTOP, filled(tmp_path, chosen, LAPTOP, errors, value), {})
    assert verdict_of(found, "frozen evaluator: return non-increasing") == "holds"
    assert verdict_of(found, "frozen evaluator: error non-increasing") == "holds"
    assert verdict_of(found, "close to the baseline") == "holds"
    assert verdict_of(found, "more accurate than the frozen one") == "holds"
    rising = filled(tmp_path / "rising", chosen, LAPTOP, errors, lambda job: 20 - value(job))
    assert verdict_of(study_report(chosen, LAPTOP, rising, {}), "return non-increasing") == "does not hold"
    normalised = found.tables[0]
    ratios = {row[1]: row[3].mean for row in normalised.rows if row[0] == "Asterix"}
    assert ratios["frozen evaluator, β = 0.1"] == pytest.approx(0.8, abs=0.01)


def test_gradients_are_compared_with_their_own_beta_0(tmp_path):
    chosen = study("gradients")

    def errors(job):
        return {"evaluator": 0.5 if "frozen-ramped-critic" in job.label else 1.0}

    found = study_report(chosen, LAPTOP, filled(tmp_path, chosen, LAPTOP, errors, lambda job: -4.0), {})
    assert verdict_of(found, "frozen ramped critic β=0.5: the penalty lowers") == "holds"
    assert {check.verdict for check in found.checks if "frozen" not in check.claim} == {"does not hold"}, "equal"
    table, differences = found.tables
    assert len(table.rows) == 25
    assert {row[1] for row in table.rows if row[0] in gradients.MAIN} == {30}
    assert {row[0]: row[1] for row in differences.rows}["few critic β=0.05"] == "few passive β=0"
    assert not {row[0] for row in differences.rows} & {"passive β=0", "few passive β=0", "frozen critic β=0.0"}
    assert found.figures
    assert found.method
    assert not found.paper


def test_skill_is_a_ratio_of_averages(tmp_path):
    """Errors of two seeds: 1 and 3 of the evaluator, 0.1 and 7.9 of the critic, so 1 − 4/8; the mean ratio would be −4.2."""
    chosen, two = study("gradients"), with_seeds(SMOKE, 1)
    store = Store(tmp_path)
    for job in chosen.jobs(two):
        result = trained(job, {}, -5.0)
        for row, mine, critic in zip(result["seeds"], (1.0, 3.0, 2.0), (0.1, 7.9, 4.0), strict=False):
            scores = {"evaluator": {"mse": mine}, "critic": {"mse": critic}}
            row["queries"] = {"visited": {"scores": scores}, "start": {"scores": {}}}
        keep(store, job, result)
    skills = {row[0]: row[-1] for row in study_report(chosen, two, store, {}).tables[0].rows}
    assert skills["passive β=0"].mean == 1 - 6.0 / 12.0  # three seeds
    left_out = 1 - np.array([5 / 11.9, 3 / 4.1, 4 / 8])
    assert skills["passive β=0"].standard_error == pytest.approx(np.sqrt(2 * left_out.var()))


def held_out(job, squares):
    """The result of a held-out job: squared errors by kind of Ξ and predictor, each times the same factors over seeds."""
    seeds, network = job.needs["policies"].settings["seeds"], "factored"
    factors = [1.0 + 0.01 * (seed - (seeds - 1) / 2) for seed in range(seeds)]
    evaluators = [
        {
            "behaviour": kind,
            "network": network,
            "squared_errors": {
                states: {
                    name: {key: [mse * factor for factor in factors] for key in ("all", "late")}
                    for name, mse in predictors.items()
                }
                for states in ("start", "visited")
            },
        }
        for kind, predictors in squares.items()
    ]
    folds = [list(range(first, first + 3)) for first in range(0, seeds, 3)]
    return {"folds": folds, "evaluators": evaluators, "noise": dict.fromkeys(("start", "visited"), [0.04] * seeds)}


def test_held_out_errors(tmp_path):
    """Errors 0.9 and 3 of 2 without Ξ: a ratio of 0.45, exactly, since all seeds have it; the claim of half needs one kind."""
    chosen, store = study("held-out"), Store(tmp_path)
    others = {"evaluator, Ξ shuffled": 16.0, "fitted without Ξ": 4.0, "constant": 9.0}
    for job in chosen.jobs(LAPTOP):
        keep(
            store, job, held_out(job, {"returns": {"evaluator": 9.0} | others, "rewards": {"evaluator": 0.81} | others})
        )
    found = study_report(chosen, LAPTOP, store, {})
    assert [table.name for table in found.tables] == ["held-out", "held-out-start"]
    worlds = ["Navigation", "Asterix", "SpaceInvaders"]
    for table in found.tables:
        assert [row[:3] for row in table.rows] == [
            (world, kind, "factored") for world in worlds for kind in ("returns", "rewards")
        ]
        assert table.emphasised == {(1, 3), (3, 3), (5, 3)}
        for row in table.rows[1::2]:
            assert row[3:7] == pytest.approx((0.9, 4.0, 2.0, 3.0))
            assert row[7:] == ("0.45 (0.45 to 0.45)", "0.45, 0.45, 0.45", "9 of 9", "0.45 (0.45 to 0.45)", "holds")
        assert {row[-1] for row in table.rows[::2]} == {"does not hold"}
    assert {check.verdict for check in found.checks} == {"holds"}
    assert {check.confidence for check in found.checks} == {0.975}
    assert any("Navigation 0.2, Asterix 0.2" in note for note in found.notes)
    assert len(found.figures) == 2


def test_half_the_error_is_claimed_of_navigation_only(tmp_path):
    chosen, store = study("held-out"), Store(tmp_path)
    others = {"evaluator, Ξ shuffled": 16.0, "fitted without Ξ": 4.0, "constant": 9.0}
    for job in chosen.jobs(LAPTOP):
        keep(store, job, held_out(job, {"returns": {"evaluator": 2.0} | others}))
    found = study_report(chosen, LAPTOP, store, {})
    assert verdict_of(found, "Navigation", "at most 0.5 times") == "does not hold"
    assert verdict_of(found, "Asterix", "is below that") == "holds"
    assert verdict_of(found, "SpaceInvaders", "is below that") == "holds"


def test_what_only_finished_jobs_needed_may_be_gone(tmp_path):
    """The committed results have neither the pre-trained evaluators nor all assessments."""
    chosen, store = study("gradients"), Store(tmp_path)
    jobs = chosen.jobs(SMOKE)
    for job in jobs:
        keep(store, job, trained(job, {}, -5.0))
    assert with_needs(jobs, store) == jobs
    assert not any("missing" in note for note in study_report(chosen, SMOKE, store, {}).notes)
    store.result_file(jobs[0]).unlink()
    assert [job.task for job in with_needs(jobs, store)] == ["assessment", *["train"] * len(jobs)]


def test_each_choice_is_compared_with_what_it_replaces(tmp_path):
    """Greedy states against random ones, the others against settings by hand; one thing differs, and the seeds are paired."""
    chosen = study("choices")
    mae = {"greedy": 0.1, "random": 0.3, "by-hand": 0.2, "automatic": 0.25, "target": 0.05}
    value = {"target": -3.0, "automatic": -4.001}

    def of(table, job, default):
        return next((x for word, x in table.items() if word in job.label), default)

    store = filled(
        tmp_path, chosen, LAPTOP, lambda job: {"evaluator": of(mae, job, 1.0)}, lambda job: of(value, job, -4.0)
    )
    found = study_report(chosen, LAPTOP, store, {})
    assert verdict_of(found, "navigation", "compared with random ones") == "holds"
    assert verdict_of(found, "navigation", "compared with one of fixed length") == "does not hold"
    assert verdict_of(found, "navigation", "loses at most 1 %") == "holds"
    assert verdict_of(found, "navigation", "a target of 0.1") == "holds"
    assert verdict_of(found, "navigation", "above that with a fixed β") == "holds"
    assert verdict_of(found, "crossing", "compared with random ones") == "undecided", "no sites were measured"
    jobs = chosen.jobs(LAPTOP)
    assert {job.settings["changes"]["seeds"] for job in jobs} == {10}
    selected = [job.needs["assessment"].settings["changes"].get("assessment.select") for job in jobs]
    assert selected == [None, "random", "greedy", None, None] * 2
    assert not any("assessment.select" in job.settings["changes"] for job in jobs), "the file has the states"


def test_own_values_are_compared_with_fitted_q_evaluation(tmp_path):
    """Errors of 40 before and 2.5 or 3.5 after, against 2: a ratio of 20, 1.25 and 1.75."""
    chosen = study("targets")

    def errors(job):
        after = 3.5 if "ant" in job.label else 2.5
        return {"evaluator": after if "evaluator.bootstrap" in job.settings["changes"] else 40.0}

    found = study_report(chosen, LAPTOP, filled(tmp_path, chosen, LAPTOP, errors), {})
    assert verdict_of(found, "critic's values: evaluator MAE") == "does not hold"
    assert verdict_of(found, "Reacher, own values: evaluator MAE") == "holds"
    assert verdict_of(found, "Ant, own values: evaluator MAE") == "does not hold"
    table, squared = found.tables
    assert {row[2].mean for row in squared.rows} == {1.0}, "the made-up squared error"
    shown = {row[:2]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    ratios = {key: row["evaluator / FQE"].mean for key, row in shown.items() if key[0] != "HalfCheetah"}
    assert ratios == {
        ("Reacher", "critic's values"): pytest.approx(20, rel=0.05),
        ("Reacher", "own values"): pytest.approx(1.25, rel=0.05),
        ("Ant", "critic's values"): pytest.approx(20, rel=0.05),
        ("Ant", "own values"): pytest.approx(1.75, rel=0.05),
    }
    # the made-up standard errors are 0, 1, 2 and 3, and a standard normal number is 0.7979 in size on average
    assert shown["Ant", "own values"]["noise"].mean == pytest.approx(1.5 * 0.797885)


def test_only_the_targets_differ_from_the_study_of_robots():
    """The jobs before are those of `continuous`, and those after have the same seeds and the same assessment."""
    for scale in SCALES.values():
        known = {job.name for job in study("continuous").jobs(scale)}
        jobs = study("targets").jobs(scale)
        before = [job for job in jobs if job.name in known]
        after = [job for job in jobs if job.name not in known]
        assert len(before) == len(after)
        for old, new in zip(before, after, strict=True):
            assert new.needs == old.needs
            assert new.settings["methods"] == ["fqe"]
            usual = old.settings["changes"]
            changed = {key: x for key, x in new.settings["changes"].items() if x != usual.get(key)}
            assert changed.pop("evaluator.bootstrap") == "evaluator"
            assert changed.pop("evaluator.truncation") == "bootstrap"
            assert set(changed) <= {"evaluator.policies", "evaluator.batch_size", "evaluator.final_steps"}


def test_help_lists_every_study(capsys):
    with pytest.raises(SystemExit):
        call(["reproduce", "--help"])
    shown = capsys.readouterr().out
    for name, summary in STUDIES.items():
        assert f"{name:<11} {summary}" in shown


@pytest.mark.parametrize("name", STUDIES)
def test_nothing_finished_is_no_crash_and_is_said(tmp_path, name):
    chosen = study(name)
    found = study_report(chosen, SMOKE, Store(tmp_path), {})
    assert all(check.verdict == "undecided" for check in found.checks)
    for job in with_needs(chosen.jobs(SMOKE)):
        assert any(job.name in note for note in found.notes)


def test_a_failed_job_is_named_and_the_others_count(tmp_path):
    chosen = study("tradeoff")
    failed = next(job for job in chosen.jobs(LAPTOP) if job.label.startswith("freeway-frozen-0.1"))
    store = filled(tmp_path, chosen, LAPTOP, leave_out=[failed.name])
    found = study_report(chosen, LAPTOP, store, {failed.name: "out of memory"})
    assert any(failed.name in note and "out of memory" in note for note in found.notes)
    assert len(found.tables[0].rows) == 3 * 6 - 1
    assert verdict_of(found, "Freeway, frozen evaluator: return non-increasing") == "undecided"


@pytest.mark.parametrize("name", [name for name in PAPER_STUDIES if name not in ("tabular", "scenarios")])
def test_controls_stand_in_every_table_of_errors(tmp_path, name):
    chosen = study(name)
    found = study_report(chosen, LAPTOP, filled(tmp_path, chosen, LAPTOP), {})
    for table in found.tables:
        if table.name.startswith("errors-"):
            assert {"critic", "evaluator, Ξ zeroed", "FQE", "FQE, greedy-huber"} <= set(table.columns)
            assert any("passive" in str(row[1]) for row in table.rows)
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert found.figures
    assert found.about["configuration"]
    assert write_report(found, tmp_path / "report").exists()


def test_results_share_their_jobs():
    """So that nothing that two results need is run twice."""
    games = {job.name for job in study("tradeoff").jobs(PAPER)}
    assert {job.name for job in study("pipelines").jobs(PAPER)} < games
    assert {job.name for job in study("ope-on-eva").jobs(PAPER)} < games
    assert games < {job.name for job in study("curves").jobs(PAPER)}


def test_the_papers_protocol():
    games = study("tradeoff").jobs(PAPER)
    assert sum(job.settings["changes"]["seeds"] for job in games) == 3 * 6 * 20
    mismatch = study("mismatch").jobs(PAPER)
    assert sum(job.settings["changes"]["seeds"] for job in mismatch) == 3 * 30
    assert with_seeds(PAPER, 7).brax.seeds == 7
    assert with_seeds(PAPER, None) is PAPER
    assert dataclasses.asdict(SMOKE)["trials"] == 20


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["tradeof"], "study: unknown 'tradeof'; did you mean 'tradeoff'?"),
        (["tabular", "--seeds", "0"], "seeds: 0 is not allowed"),
        (["tabular", "--seeds", "5", "--seeds-per-job", "0"], "seeds-per-job: 0 is not allowed"),
        (["tabular", "--seeds-per-job", "2"], "seeds-per-job: is not allowed without --seeds"),
        (["tabular", "--workers", "0"], "workers: 0 is not allowed"),
        (["tabular", "--address", "auto"], "address: auto is not allowed; requires --engine ray"),
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


def test_a_report_of_what_is_finished_runs_nothing(tmp_path, capsys):
    assert call(["reproduce", "families", "--scale", "smoke", "--out", str(tmp_path), "--report-only"]) == 0
    assert "report: " in capsys.readouterr().out
    page = (tmp_path / "families" / "report.html").read_text()
    missing = with_needs(study("families").jobs(SMOKE))
    assert all(f"job {job.name} is missing: it was not run" in page for job in missing)
    assert not list(tmp_path.glob("jobs/*"))


def test_the_full_scale():
    """10M steps and 10 seeds of the games in jobs of 5, 5M steps and 5 seeds of the robots with A2C and with PPO."""
    games = study("tradeoff").jobs(FULL)
    assert {(job.settings["changes"]["seed"], job.settings["changes"]["seeds"]) for job in games} == {(0, 5), (5, 5)}
    assert len(games) == 3 * 6 * 2
    config = studied(games[0].settings["preset"], games[0].settings["changes"])
    assert 10e6 <= config.environments * config.steps * config.updates < 10.01e6
    robots = study("continuous").jobs(FULL)
    by_algorithm = {"a2c": 3 * 3, "ppo": 3 * 2}
    for algorithm, count in by_algorithm.items():
        chosen = [studied("brax", job.settings["changes"]) for job in robots]
        chosen = [one for one in chosen if one.agent.algorithm == algorithm]
        assert len(chosen) == count
        assert {one.environments * one.steps * one.updates for one in chosen} == {4_997_120}
        assert {one.evaluator.warmup for one in chosen} == {49}
    assert len({job.name for job in robots}) == len(robots)
    drawn = {
        job.settings["changes"].get("agent.algorithm", "a2c"): job.needs["assessment"].name for job in robots[::-1]
    }
    assert len(set(drawn.values())) == 2, "the start states of PPO are those that its own base policy visits"
    with_frozen = study("curves").jobs(FULL)
    assert sum(job.settings["preset"] == "brax" for job in with_frozen) == 3 * 6
    assert {job.name for job in study("mismatch").jobs(FULL)} == {job.name for job in study("mismatch").jobs(PAPER)}
    assert {job.name for job in study("families").jobs(FULL)} == {job.name for job in study("families").jobs(LAPTOP)}


def test_a_variant_is_a_world_of_its_own_in_every_table(tmp_path):
    chosen = study("continuous")
    found = study_report(chosen, FULL, filled(tmp_path, chosen, FULL), {})
    for table in found.tables:
        worlds = list(dict.fromkeys(row[0] for row in table.rows))
        assert worlds == [*(names := ["HalfCheetah", "Reacher", "Ant"]), *(f"{name}, PPO" for name in names)]
    assert len({check.claim for check in found.checks}) == len(found.checks)
    printed = {row[0]: row[2] for row in found.tables[0].rows if row[1] == "MAE: EvA-RL, evaluator"}
    assert printed["Ant"].mean == 16.47
    assert printed["Ant, PPO"] is None


def test_more_seeds_leave_finished_jobs_valid():
    """The scale's own seeds keep their jobs; those beyond come in jobs of 5, or of as many as are asked for."""

    def jobs(scale, name="tradeoff"):
        return {job.name: job.settings["changes"] for job in study(name).jobs(scale) if job.task == "train"}

    def spans(scale):
        return {(changes["seed"], changes["seeds"]) for changes in jobs(scale).values()}

    ten = with_seeds(LAPTOP, 10)
    assert jobs(LAPTOP).keys() < jobs(ten).keys()
    assert spans(ten) == {(0, 3), (3, 5), (8, 2)}
    assert spans(with_seeds(LAPTOP, 10, 2)) == {(0, 3), (3, 2), (5, 2), (7, 2), (9, 1)}
    assert spans(with_seeds(LAPTOP, 2)) == {(0, 2)}
    assert jobs(FULL).keys() < jobs(with_seeds(FULL, 20)).keys()
    for name in ("gradients", "families", "choices", "continuous", "mismatch"):
        assert jobs(LAPTOP, name).keys() <= jobs(with_seeds(LAPTOP, 20), name).keys(), name


def test_uncommitted_changes_are_said_before_jobs_start(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("evarl.studies.schedule.run_jobs", lambda *arguments: {})
    arguments = ["reproduce", "tabular", "--scale", "smoke", "--out", str(tmp_path), "--workers", "1"]
    for here, said in (("abc+changes", True), ("abc", False), (None, False)):
        monkeypatch.setattr("evarl.cli.reproduce.commit", lambda here=here: here)
        assert call(arguments) == 0
        assert ("results will name its commit with +changes" in capsys.readouterr().err) is said
    monkeypatch.setattr("evarl.cli.reproduce.commit", lambda: "abc+changes")
    monkeypatch.setattr(Store, "finished", lambda self, job: True)
    monkeypatch.setattr("evarl.cli.reproduce._write", lambda *arguments: None)
    assert call(arguments) == 0
    assert capsys.readouterr().err == "", "nothing is run"
