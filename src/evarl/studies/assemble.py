"""The findings of a result with all that a reader needs to judge them and to make them again."""

import dataclasses
from typing import Any

from evarl.learning.configuration import with_settings
from evarl.learning.presets import preset
from evarl.studies.findings import Findings
from evarl.studies.jobs import Job, Store, with_needs
from evarl.studies.results import Result
from evarl.studies.scales import Scale


def findings(result: Result, scale: Scale, store: Store, failures: dict[str, str]) -> Findings:
    """What a result says, from the jobs that are finished; those that are not are named."""
    jobs = with_needs(result.jobs(scale))
    said = result.said(scale, store)
    missing = [
        f"job {job.name} is missing: {failures.get(job.name, 'it was not run')}"
        for job in jobs
        if not store.finished(job)
    ]
    return Findings(
        name=result.name,
        title=result.title,
        paper=result.paper,
        checks=said.checks,
        tables=said.tables,
        pictures=said.pictures,
        notes=(*([f"scale {scale.about}"] if scale.name == "smoke" else []), *said.notes, *missing),
        about=_about(result, scale, store, [job for job in jobs if store.finished(job)]),
    )


def _about(result: Result, scale: Scale, store: Store, jobs: list[Job]) -> dict[str, Any]:
    records = {job.name: store.record(job) for job in jobs}
    spent = sum(record["seconds"] for record in records.values())
    seeds = {
        job.name: f"{_first(job)} to {_first(job) + job.settings['changes']['seeds'] - 1}"
        for job in jobs
        if job.task == "train"
    }
    about: dict[str, Any] = {
        "command": f"evarl reproduce {result.name} --scale {scale.name}",
        "scale": f"{scale.name}: {scale.about}",
        "time spent": f"{spent / 60:.1f} minutes of work in {len(jobs)} jobs",
        **({"seeds": seeds} if seeds else {}),
        "machine": _alike([record["machine"] for record in records.values()]),
        "versions": _alike([record["versions"] for record in records.values()]),
        "commit": _alike([{"commit": record["commit"]} for record in records.values()]).get("commit"),
        "jobs": {
            name: {key: record[key] for key in ("seconds", "sittings", "peak_memory_gib")}
            | {"training": record["result"].get("training", {})}
            for name, record in records.items()
        },
        "configuration": {job.name: _configuration(job) for job in jobs},
    }
    return about


def _first(job: Job) -> int:
    return int(job.settings["changes"]["seed"])


def _configuration(job: Job) -> dict[str, Any]:
    """All settings of a job, those that a preset fills in as well."""
    if "preset" not in job.settings:
        return dict(job.settings)
    config = with_settings(preset(job.settings["preset"]), job.settings["changes"]).resolved()
    rest = {name: value for name, value in job.settings.items() if name not in ("preset", "changes")}
    needs = {f"{part} from": needed.name for part, needed in job.needs.items()}
    return {**rest, **needs, "training": dataclasses.asdict(config)}


def _alike(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """One table of many: where they differ, all values."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        values = list(dict.fromkeys(str(table.get(name)) for table in tables))
        found[name] = values[0] if len(values) == 1 else ", ".join(values)
    return found
