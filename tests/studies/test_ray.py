"""The same grid on Ray: a real one, with two workers, one of which is killed."""

import sys
import threading

import pytest

from evarl.errors import InputError
from evarl.studies import ray_workers
from evarl.studies.jobs import Job, Store
from evarl.studies.local import LocalWorkers
from evarl.studies.ray_workers import RayWorkers
from evarl.studies.schedule import run_jobs
from evarl.studies.tasks import TRAINING
from tests.studies.test_jobs import Interrupt, Kill, Nobody, look_often, quick, store, training

__all__ = ["look_often", "store"]  # fixtures

# Ray starts its processes by fork and exec, which is harmless; JAX warns of every fork once another test has used it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

LONG = training("long", updates=3000)


@pytest.fixture(scope="module")
def ray():
    return pytest.importorskip("ray", reason="ray is not installed: pip install 'evarl[ray]'")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What LONG finds in one sitting on this machine."""
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    assert run_jobs([LONG], store, LocalWorkers(store, 1), Nobody()) == {}
    return store.result(LONG)["seeds"]


@pytest.mark.slow
def test_a_killed_worker_costs_nothing_and_what_fails_stops_only_what_needs_it(ray, store, undisturbed):
    kept, first, second = quick("kept"), quick("first"), quick("second", seed=1)
    store.keep(kept, {"result": {"found": "earlier"}})
    wrong = training("wrong", world="navigaton")
    after = Job("after", "tabular", quick().settings, {"part": wrong})
    kill = Kill(store, LONG, "update")
    failures = run_jobs([LONG, kept, first, second, after], store, RayWorkers(store, None, 2), kill)
    assert 0 < kill.done < TRAINING  # it was killed while it trained
    assert failures.keys() == {wrong.name, after.name}
    assert failures[wrong.name].startswith("world: unknown 'navigaton'; did you mean 'navigation'?")
    assert "\n" not in failures[wrong.name]
    assert failures[after.name] == f"was not started: it needs {wrong.name}, which failed"
    assert [store.record(job)["sittings"] for job in (LONG, first, second)] == [2, 1, 1]
    assert not store.work(kept).exists()
    assert store.result(LONG)["seeds"] == undisturbed
    assert not ray.is_initialized()
    assert not list(store.folder.glob(".*"))


@pytest.mark.slow
def test_interrupted_it_saves_and_goes_on_wherever_it_is_called_again(ray, store, undisturbed):
    with pytest.raises(KeyboardInterrupt):
        run_jobs([LONG], store, RayWorkers(store, None, 1), Interrupt(store, LONG))
    assert not ray.is_initialized()
    saved = [path.name for path in store.work(LONG).glob("run/checkpoints/*/update-*")]
    assert max(saved) > "update-000000000.safetensors"
    assert run_jobs([LONG], store, LocalWorkers(store, 1), Nobody()) == {}
    assert store.record(LONG)["sittings"] == 2
    assert store.result(LONG)["seeds"] == undisturbed


@pytest.mark.slow
def test_a_folder_that_workers_do_not_see_is_one_clear_line(ray, store):
    workers = RayWorkers(store, None, 1)
    for mark in store.folder.glob(".seen-by-all-*"):  # as if this were not the folder that they see
        mark.unlink()
    with pytest.raises(InputError, match=r"does not see .* choose a folder on storage that all nodes share"):
        run_jobs([quick()], store, workers, Nobody())
    assert not ray.is_initialized()


def test_no_cluster_at_the_address_is_one_clear_line(ray, store):
    with pytest.raises(InputError, match=r"engine: no Ray at 127\.0\.0\.1:1: .*refused"):
        RayWorkers(store, "127.0.0.1:1", None)
    assert not list(store.folder.iterdir())


def test_without_ray_it_says_how_to_get_it(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError) as error:
        RayWorkers(store, None, 2)
    assert str(error.value) == "engine: ray is not installed; pip install 'evarl[ray]'"


def test_a_job_waits_for_the_lock_of_a_worker_that_dies(store, monkeypatch):
    job = quick()
    taken, let_go = threading.Event(), threading.Event()

    def die_slowly():
        with store.locked(job):
            taken.set()
            let_go.wait()

    dying = threading.Thread(target=die_slowly)
    dying.start()
    taken.wait()
    monkeypatch.setattr(ray_workers, "TAKEN_SECONDS", -1.0)
    assert do(store, job) == f"{job.name}: another process is working on it"
    monkeypatch.undo()
    threading.Timer(0.1, let_go.set).start()
    assert do(store, job) is None
    dying.join()
    assert store.record(job)["sittings"] == 2


def test_what_nobody_foresaw_is_a_line_and_a_traceback_in_the_folder(store):
    job = Job("odd", "tabular", {"trials": 2, "no_such_setting": 1})
    output = store.work(job) / "output.txt"
    line = do(store, job)
    assert line.startswith("TypeError: tabular_study() got an unexpected keyword argument 'no_such_setting'")
    assert line.endswith(f"(see {output})")
    assert output.read_text().startswith("Traceback")


def do(store: Store, job: Job) -> str | None:
    """What a Ray worker does, here."""
    return ray_workers._do(str(store.folder), job.to_dict(), str(store.folder.parent))
