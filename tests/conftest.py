"""The whole suite runs under strict dtype promotion, no silent rank promotion, warnings as errors and checked shapes."""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "compiled"))
# what runs keep for one another is not shared with those of the user, nor with another session
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="evarl-cache-")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # even a sum is compiled in a dozen processes
os.environ.setdefault(
    "JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0"
)  # a twentieth of the time of compilation, and nobody reads them

from tests.shapes import check_shapes_in

CHECKED = ["evarl"]
"""Packages whose functions have their declared array shapes checked."""
if os.environ.get("EVARL_CHECK_SHAPES") != "no":  # a second pass over the same tests need not
    check_shapes_in(CHECKED)

from evarl.studies.scales import COMPILE_QUICKLY  # noqa: E402

# Most of the time of the suite is compilation, and most of that is spent on making programs fast that run once. Flags that
# are set outside come last, and so win.
os.environ["XLA_FLAGS"] = f"{COMPILE_QUICKLY} {os.environ.get('XLA_FLAGS', '')}"

import jax  # noqa: E402
import pytest  # noqa: E402

from evarl.runs import traced  # noqa: E402
from tests.evaluation.tiny import SHARED  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it starts in the background ignore Ctrl-C, and processes that tests start and stop would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)
gc.set_threshold(100_000, 50, 50)  # programs that are traced are millions of objects, and all of them stay


# tests replace functions that programs are traced from, of which the keys of what is kept know nothing
traced.WORTH = float("inf")


@pytest.fixture
def key() -> jax.Array:
    return jax.random.PRNGKey(0)


@pytest.fixture(scope="session", autouse=True)
def runs_are_shared(tmp_path_factory) -> None:
    """Workers have folders of their own inside that of the session."""
    own = tmp_path_factory.getbasetemp()
    SHARED[:] = [(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "tiny"]


SLOW = (
    "test_sites",
    "test_certificates",
    "test_contexts",
    "test_faults",
    "test_gradients",
    "test_behaviour",
    "test_hostile",
    "test_knowledge",
    "test_torsos",
    "test_fqe",
    "test_docs",
    "test_outside",
    "test_fitting",
    "test_diverse_memory",
    "test_limits",
    "test_animation",
    "test_estimate",
    "test_family_gradients",
    "test_ope",
    "test_assess",
    "test_evaluation_aware",
    "test_monte_carlo",
    "test_networks",
    "test_fuzz",
    "test_acting",
    "test_improve",
    "test_own_environments",
    "test_checks",
    "test_jobs",
    "test_control",
)
"""Files that take longest: begun first, so that no worker is left with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.index(item.path.stem) if item.path.stem in SLOW else len(SLOW))
