"""Complete report of a study: its results with everything needed to judge and to repeat them."""

import dataclasses
from typing import Any

from evarl.learning.presets import studied
from evarl.studies.catalogue import Study
from evarl.studies.jobs import Job, Store, with_needs
from evarl.studies.reports import StudyReport
from evarl.studies.scales import StudyScale


def study_report(study: Study, scale: StudyScale, store: Store, failures: dict[str, str]) -> StudyReport:
    """The report of a study from its finished jobs; the notes name the jobs that are missing."""
    jobs = study.jobs(scale)
    results = study.results(scale, store)
    finished = [(job, store.record(job)) for job in with_needs(jobs) if store.finished(job)]
    missing = [
        f"job {job.name} is missing: {failures.get(job.name, 'it was not run')}"
        for job in with_needs(jobs, store)
        if not store.finished(job)
    ]
    told = dict.fromkeys(record["note"] for _, record in finished if record.get("note"))
    smoke = [f"scale {scale.about}"] if scale.name == "smoke" else []
    return StudyReport(
        name=study.name,
        title=study.title,
        paper=study.paper,
        method=study.method,
        about=_provenance(study, scale, finished),
        checks=results.checks,
        tables=results.tables,
        figures=tuple(figure for figure in results.figures if figure is not None),
        notes=(*smoke, *results.notes, *told, *missing),
    )


def _provenance(study: Study, scale: StudyScale, finished: list[tuple[Job, dict[str, Any]]]) -> dict[str, Any]:
    """Command, seeds, time, machine, versions and configuration of the finished jobs."""
    spent = [record["seconds"] for _, record in finished if record["seconds"] is not None]
    trained = {job.name: job.settings["changes"] for job, _ in finished if job.task == "train"}
    seeds = {name: f"{one['seed']} to {one['seed'] + one['seeds'] - 1}" for name, one in trained.items()}
    return {
        "command": f"evarl reproduce {study.name} --scale {scale.name}",
        "scale": f"{scale.name}: {scale.about}",
        "time spent": f"{sum(spent) / 60:.1f} minutes of work in {len(spent)} jobs" if spent else "unknown",
        **({"seeds": seeds} if seeds else {}),
        "machine": _merged([record["machine"] for _, record in finished]),
        "versions": _merged([record["versions"] for _, record in finished]),
        "commit": _merged([{"commit": record["commit"]} for _, record in finished]).get("commit"),
        "jobs": {
            job.name: {key: record[key] for key in ("seconds", "sittings", "peak_memory_gib")}
            | {"training": record["result"].get("training", {})}
            for job, record in finished
        },
        "configuration": {job.name: _configuration(job) for job, _ in finished},
    }


def _configuration(job: Job) -> dict[str, Any]:
    """All settings of a job, including those of its preset."""
    rest = dict(job.settings)
    if "preset" not in rest:
        return rest
    config = studied(rest.pop("preset"), rest.pop("changes")).resolved()
    needs = {f"{part} from": needed.name for part, needed in job.needs.items()}
    return {**rest, **needs, "training": dataclasses.asdict(config)}


def _merged(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """One table of many; where they differ, all values."""
    names = dict.fromkeys(name for table in tables for name in table)
    values = {
        name: dict.fromkeys(str(table[name]) for table in tables if table.get(name) is not None) for name in names
    }
    return {name: ", ".join(found) or None for name, found in values.items()}
