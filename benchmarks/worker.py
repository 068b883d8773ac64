"""One of our programs in a process of its own: `python -m benchmarks.worker '{"program": "training", …}' [--cache DIR]`.

The JSON has the fields of `benchmarks.specs.Spec`; `benchmarks.peers.protocol` says what is spoken.
"""

import argparse
import contextlib
import json
import os
import sys

from benchmarks.peers import protocol
from benchmarks.specs import Spec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", help="fields of a Spec as JSON")
    parser.add_argument("--cache", default="", help=protocol.HELP["cache"])
    options = parser.parse_args()
    spec = Spec(**json.loads(options.spec))
    if options.cache:  # what runs keep for one another is kept there too
        os.environ["XDG_CACHE_HOME"] = options.cache
    if spec.devices:  # must be known before JAX is imported
        flag = f"--xla_force_host_platform_device_count={spec.devices}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
    with contextlib.redirect_stdout(sys.stderr):  # imports, Brax's included, are not a part of compilation
        import jax

        from benchmarks import offline, parts, programs
        from evarl.worlds.registry import make_world

        make_world(spec.world)
    build = {
        "environment only": programs.environment_only,
        "rollouts": programs.rollouts,
        "training": programs.training,
        "parts": parts.parts,
        "ground truth": offline.ground_truth,
        "fqe": offline.fitted_q,
        "importance sampling": offline.importance_sampling,
    }[spec.program]
    protocol.keep_compiled(jax.config, options.cache)
    protocol.serve(lambda: build(spec))


if __name__ == "__main__":
    main()
