"""Complete report of a study: its results with everything needed to judge and to repeat them."""

import dataclasses
from typing import Any

from evarl.learning.configuration import with_settings
from evarl.learning.presets import preset
from evarl.studies.catalogue import Study
from evarl.studies.jobs import Job, Store, with_needs
from evarl.studies.reports import StudyReport
from evarl.studies.scales import StudyScale


def study_report(study: Study, scale: StudyScale, store: Store, failures: dict[str, str]) -> StudyReport:
    """The report of a study from its finished jobs; the notes name the jobs that are missing."""
    jobs = study.jobs(scale)
    finished = [job for job in with_needs(jobs) if store.finished(job)]
    results = study.results(scale, store)
    missing = [
        f"job {job.name} is missing: {failures.get(job.name, 'it was not run')}"
        for job in with_needs(jobs, store)
        if not store.finished(job)
    ]
    records = {job.name: store.record(job) for job in finished}
    told = dict.fromkeys(record["note"] for record in records.values() if record.get("note"))
    smoke = [f"scale {scale.about}"] if scale.name == "smoke" else []
    return StudyReport(
        name=study.name,
        title=study.title,
        paper=study.paper,
        method=study.method,
        about=_provenance(study, scale, finished, records),
        **vars(results) | {"notes": (*smoke, *results.notes, *told, *missing)},
    )


def _provenance(study: Study, scale: StudyScale, jobs: list[Job], records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Command, seeds, time, machine, versions and configuration of the finished jobs."""
    spent = [record["seconds"] for record in records.values() if record["seconds"] is not None]
    seeds = {job.name: _seeds(job) for job in jobs if job.task == "train"}
    return {
        "command": f"evarl reproduce {study.name} --scale {scale.name}",
        "scale": f"{scale.name}: {scale.about}",
        "time spent": f"{sum(spent) / 60:.1f} minutes of work in {len(spent)} jobs" if spent else "unknown",
        **({"seeds": seeds} if seeds else {}),
        "machine": _merged([record["machine"] for record in records.values()]),
        "versions": _merged([record["versions"] for record in records.values()]),
        "commit": _merged([{"commit": record["commit"]} for record in records.values()]).get("commit"),
        "jobs": {
            name: {key: record[key] for key in ("seconds", "sittings", "peak_memory_gib")}
            | {"training": record["result"].get("training", {})}
            for name, record in records.items()
        },
        "configuration": {job.name: _configuration(job) for job in jobs},
    }


def _seeds(job: Job) -> str:
    changes = job.settings["changes"]
    return f"{changes['seed']} to {changes['seed'] + changes['seeds'] - 1}"


def _configuration(job: Job) -> dict[str, Any]:
    """All settings of a job, including those of its preset."""
    if "preset" not in job.settings:
        return dict(job.settings)
    config = with_settings(preset(job.settings["preset"]), job.settings["changes"]).resolved()
    rest = {name: value for name, value in job.settings.items() if name not in ("preset", "changes")}
    needs = {f"{part} from": needed.name for part, needed in job.needs.items()}
    return {**rest, **needs, "training": dataclasses.asdict(config)}


def _merged(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """One table of many; where they differ, all values."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        values = dict.fromkeys(str(table[name]) for table in tables if table.get(name) is not None)
        found[name] = ", ".join(values) or None
    return found
