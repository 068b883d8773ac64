"""How `make bench` speaks to a peer: JSON lines, so that repetitions of all programs can be interleaved.

A worker says `{"compile_seconds": …, "steps": …}` when it is ready, where steps are those of the environment in one
repetition; for every line that it is sent it runs one repetition and says `{"seconds": …}`; at the end of its input it says
`{"peak_gib": …}`. It may notify more in the first two. Standard library only: it is imported in the virtual environments of
the peers.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

HELP = {
    "world": "its name in the peer's own registry",
    "backend": "physics engine",
    "algorithm": "learning algorithm",
    "horizon": "time limit of an episode",
    "environments": "environments side by side",
    "steps": "steps in each environment per update",
    "epochs": "passes over each batch",
    "minibatches": "gradient steps in one pass",
    "updates": "updates in one repetition",
    "threads": "threads of the peer's own; 0 leaves the choice to it",
    "cache": "directory in which compiled programs are kept",
}
"""What the flags mean that workers share."""


def parse(description: str, **defaults: object) -> argparse.Namespace:
    """The command line, with a flag for each default."""
    form = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=form)
    for name, default in defaults.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(default), default=default, help=HELP.get(name, " "))
    return parser.parse_args()


def keep_compiled(config: Any, directory: str) -> None:
    """Let JAX (its `config`) keep compiled programs in a directory, if one was named."""
    if directory:
        config.update("jax_compilation_cache_dir", directory)
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def take_stdout() -> TextIO:
    """Standard output for answers alone; what anybody else prints goes to standard error from now on."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def answer(answers: TextIO, **fields: Any) -> None:
    """One line."""
    print(json.dumps(fields), file=answers)


def repetitions(answers: TextIO) -> Iterator[dict[str, Any]]:
    """One item for each line that arrives; a repetition lasts until the next item is asked for.

    The item is a place for more than the seconds.
    """
    for _ in sys.stdin:
        more: dict[str, Any] = {}
        began = time.perf_counter()
        yield more
        answer(answers, seconds=time.perf_counter() - began, **more)
    answer(answers, peak_gib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def serve(build: Callable[[], tuple[Any, ...]]) -> None:
    """Speak for a program.

    `build` compiles it and returns one repetition as a function (which may return more to notify), the steps in it and, if
    there is more to notify of it, a dictionary.
    """
    answers = take_stdout()
    began = time.perf_counter()
    repeat, steps, *details = build()
    ready = {"compile_seconds": time.perf_counter() - began, "steps": steps}
    answer(answers, **(ready | dict(*details)))
    for more in repetitions(answers):
        more.update(repeat() or {})
