"""Jobs, the store and the scheduler, with workers on this machine."""

import dataclasses
import json
import os
import signal

import jax
import numpy as np
import pytest

from evarl.errors import FileError, InputError
from evarl.studies import schedule
from evarl.studies.jobs import Job, JobTakenError, Store, with_needs
from evarl.studies.local import LocalWorkers, cores_of_each, work
from evarl.studies.schedule import run_jobs

TINY = {"environments": 2, "steps": 16, "seeds": 2, "agent.hidden_sizes": [8]}


def training(label="training", **changes) -> Job:
    """Real training and evaluation, as small as they get."""
    settings = {"preset": "navigation", "changes": TINY | {"updates": 300} | changes, "methods": [], "fqe_steps": 1}
    return Job(label, "train", settings | {"states": 2, "rollouts": 2, "log_megabytes": 0})


def quick(label="quick", **changes) -> Job:
    """A job that is over when JAX is imported."""
    return Job(label, "tabular", {"trials": 2, "restarts": 1, "steps": 1} | changes)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    monkeypatch.setattr(schedule, "LOOK_SECONDS", 0.05)


class Nobody:
    """Does not watch."""

    def __call__(self, finished, failed, running):
        pass


class Interrupt:
    """Presses Ctrl-C while a job trains."""

    def __init__(self, store, job):
        self.store, self.job = store, job

    def __call__(self, finished, failed, running):
        if "update" in self.store.progress(self.job)[1]:
            raise KeyboardInterrupt


class Kill:
    """Kills the worker of a job, once, as soon as it has begun and reports this text."""

    def __init__(self, store, job, text=""):
        self.store, self.job, self.text, self.done = store, job, text, None

    def __call__(self, finished, failed, running):
        done, text = self.store.progress(self.job)
        file = self.store.work(self.job) / "sittings"
        worker = file.read_text() if file.exists() else ""
        if self.done is None and worker and self.text in text:
            os.kill(int(worker), signal.SIGKILL)
            self.done = done


class Counting(LocalWorkers):
    """Knows what it was asked to begin."""

    begun: tuple[str, ...] = ()

    def start(self, job):
        self.begun += (job.name,)
        super().start(job)


def test_a_name_changes_with_every_setting_and_with_nothing_else():
    job = Job("a", "train", {"x": 1, "changes": {"y": [1, 2]}}, {"assessment": quick()})
    same = Job("a", "train", {"changes": {"y": [1, 2]}, "x": 1}, {"assessment": quick()}, weight=7.0)
    assert job.name == same.name
    others = [
        dataclasses.replace(job, label="b"),
        dataclasses.replace(job, task="tabular"),
        dataclasses.replace(job, settings={"x": 2, "changes": {"y": [1, 2]}}),
        dataclasses.replace(job, settings={"x": 1, "changes": {"y": [2, 1]}}),
        dataclasses.replace(job, settings={"x": 1, "changes": {"y": [1, 2]}, "z": None}),
        dataclasses.replace(job, needs={}),
        dataclasses.replace(job, needs={"frozen": quick()}),
        dataclasses.replace(job, needs={"assessment": quick(trials=3)}),
    ]
    assert len({job.name, *(other.name for other in others)}) == len(others) + 1


def test_a_job_survives_being_sent():
    job = training()
    job = Job("b", "train", job.settings, {"part": Job("a", "pretrain", {"z": 0.1}, {"deeper": quick()})}, 2.0)
    sent = Job.from_dict(json.loads(json.dumps(job.to_dict())))
    assert sent == job
    assert sent.name == job.name


def test_what_is_needed_comes_first_and_once():
    first = quick("first")
    second = Job("second", "tabular", {}, {"part": first})
    third = Job("third", "tabular", {}, {"one": first, "two": second})
    assert [job.label for job in with_needs([third, second, first])] == ["first", "second", "third"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"job": "other", "result": {}}', '{"result": {}}'])
def test_a_corrupt_result_is_one_clear_error(store, text):
    job = quick()
    store.keep(job, {"result": {"a": 1}})
    assert store.result(job) == {"a": 1}
    store.result_file(job).write_text(text)
    for use in (store.result, store.record, store.finished):
        with pytest.raises(FileError) as error:
            use(job)
        assert str(store.result_file(job)) in str(error.value)
        assert "delete it and run `evarl reproduce` again" in str(error.value)
        assert "\n" not in str(error.value)


def test_a_missing_result_and_a_missing_file(store):
    job = quick()
    assert not store.finished(job)
    with pytest.raises(FileError, match="is missing; run `evarl reproduce` again"):
        store.result(job)
    store.file(job).parent.mkdir(parents=True)
    store.file(job).touch()
    store.keep(job, {"result": {}})
    assert store.finished(job)
    store.file(job).unlink()
    assert not store.finished(job)


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is not a directory; choose another"):
        Store(tmp_path / "file").check()


def test_a_job_is_done_by_one_process_at_a_time(store):
    job = quick()
    with store.locked(job) as first, pytest.raises(JobTakenError, match="another process is working on it"):
        work(str(store.folder), job.to_dict())
    with store.locked(job) as second:
        assert (first, second) == (1, 2)


def test_what_fails_stops_only_what_needs_it_and_what_is_finished_is_left_alone(store):
    kept = quick("kept")
    store.keep(kept, {"result": {"found": "earlier"}})
    wrong = training("wrong", world="navigaton")
    after = Job("after", "tabular", quick().settings, {"part": wrong})
    later = Job("later", "tabular", quick().settings, {"part": after})
    good = Job("good", "tabular", quick().settings, {"part": kept})
    workers = Counting(store, 2)
    failures = run_jobs([later, good], store, workers, Nobody())
    assert set(workers.begun) == {wrong.name, good.name}
    assert failures.keys() == {wrong.name, after.name, later.name}
    assert failures[wrong.name].startswith("world: unknown 'navigaton'; did you mean 'navigation'?")
    assert "\n" not in failures[wrong.name]
    assert failures[after.name] == f"was not started: it needs {wrong.name}, which failed"
    assert failures[later.name] == f"was not started: it needs {after.name}, which failed"
    assert store.result(kept) == {"found": "earlier"}
    assert store.record(good)["sittings"] == 1
    assert store.record(good)["machine"]["cores"] == len(cores_of_each(2)[0]), (
        "a core is not shared while there are enough"
    )
    again = Counting(store, 2)
    assert run_jobs([good], store, again, Nobody()) == {}
    assert again.begun == ()


def test_workers_share_cores_only_where_there_are_not_enough(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 5, 7, 8}, raising=False)
    assert cores_of_each(1) == [{2, 5, 7, 8}]
    assert cores_of_each(2) == [{2, 5}, {7, 8}]
    assert cores_of_each(3) == [{2}, {5}, {7}]
    assert cores_of_each(5) == [{2, 5, 7, 8}] * 5
    assert cores_of_each(1, 1) == [{2}]


@pytest.mark.slow
def test_a_killed_worker_is_reported_and_the_next_run_begins_anew(store):
    job = quick()
    failures = run_jobs([job], store, LocalWorkers(store, 1), Kill(store, job))
    output = store.work(job) / "output.txt"
    assert failures == {job.name: f"the worker was killed by SIGKILL; see {output}"}
    assert not store.finished(job)
    assert run_jobs([job], store, LocalWorkers(store, 1), Nobody()) == {}
    assert store.record(job)["sittings"] == 2


@pytest.mark.slow
def test_a_worker_that_was_killed_while_it_trained_goes_on(store, tmp_path, monkeypatch):
    """Its numbers are those of a run without trouble on two devices, but for what 300 updates make of rounding."""
    job = training()
    failures = run_jobs([job], store, LocalWorkers(store, 1), Kill(store, job, "update"))
    output = store.work(job) / "output.txt"
    assert failures == {job.name: f"the worker was killed by SIGKILL; see {output}"}
    assert not store.finished(job)
    assert run_jobs([job], store, LocalWorkers(store, 1), Nobody()) == {}
    assert store.record(job)["sittings"] == 2
    whole = Store(tmp_path / "whole")
    monkeypatch.setenv("XLA_FLAGS", f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2")
    assert run_jobs([job], whole, LocalWorkers(whole, 1), Nobody()) == {}
    assert whole.record(job)["sittings"] == 1
    one, two = store.result(job)["seeds"], whole.result(job)["seeds"]
    assert [seed["seed"] for seed in one] == [0, 1]
    assert jax.tree.structure(two) == jax.tree.structure(one)
    np.testing.assert_allclose(jax.tree.leaves(two), jax.tree.leaves(one), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_interrupted_it_stops_its_workers(store):
    """They save, and the process is gone when `run_jobs` is."""
    job = training(updates=1_000_000)
    with pytest.raises(KeyboardInterrupt):
        run_jobs([job], store, LocalWorkers(store, 1), Interrupt(store, job))
    saved = [path.name for path in store.work(job).glob("run/checkpoints/*/update-*")]
    assert max(saved) > "update-000000000.safetensors"
    pid = int((store.work(job) / "sittings").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
