"""Repeated rollouts: the same ones, where bits can be compared, or fresh ones, which the issuer could not choose."""

import os
import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
from scipy.stats import ks_2samp

from evarl.certificates import hashes
from evarl.certificates.certificate import Certificate
from evarl.certificates.checks import Changes
from evarl.certificates.claims import CLAIMS, conclude, gather
from evarl.certificates.conclusions import Conclusion, weaker
from evarl.certificates.evidence import PolicyTest, Say
from evarl.runs.provenance import machine

DIFFERENT = 1e-4
"""Level of the test that stored and fresh returns have the same distribution."""
SAMPLED = ("returns", "others", "bounds")
"""Columns that are a random sample; predictions also depend on one random assessment."""
SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_default_matmul_precision",
    "jax_platforms",
)
"""Settings of JAX that change random numbers or rounding."""
VECTOR = re.compile(r"^(avx|amx|fma|f16c|sse4|asimd|sve|neon)")


@dataclass(frozen=True)
class Replay:
    """What fresh rollouts show."""

    changed: Changes
    conclusion: Conclusion
    """The conclusion that is confirmed: the certificate's, or that of fresh rollouts where it states less."""


def fresh_key() -> np.ndarray:
    """An unpredictable key, in JAX's old style."""
    return np.frombuffer(os.urandom(8), np.uint32).copy()


def obstacles(certificate: Certificate) -> list[str]:
    """Reasons why bits cannot be compared here; none on the platform and with the code that issued the certificate."""
    here, then, now = hashes.of_code(), certificate.platform, platform_here()
    found = [f"{name} was {then.get(name)!r:.80}, is {now[name]!r:.80}" for name in now if then.get(name) != now[name]]
    if here.source != certificate.code.source:
        commit = certificate.code.commit
        found.append(f"evarl's source has changed (commit {commit!s:.12}, now {here.commit!s:.12})")
    for name, version in here.versions.items():
        if (was := certificate.code.versions.get(name)) != version:
            found.append(f"{name} was {was!s:.40}, is {version}")
    return found


def same_rollouts(certificate: Certificate, test: PolicyTest, say: Say) -> Changes:
    """Repeat the certificate's own rollouts; every number must be the same."""
    changed, again = {}, gather(test, say)
    for name in sorted(certificate.evidence.keys() | again.keys()):
        then, now = np.asarray(certificate.evidence.get(name, ())), np.asarray(again.get(name, ()))
        if then.shape != now.shape:
            changed[name] = f"there are {then.size} in the certificate, and {now.size} when repeated"
        elif not np.array_equal(then, now):
            worst = float(np.abs(then - now).max())
            changed[name] = f"are different when repeated, by up to {worst:.3g}"
    return changed


def fresh_rollouts(certificate: Certificate, test: PolicyTest, key: np.ndarray, say: Say) -> Replay:
    """Make as many rollouts from another key and compare their distribution and their conclusion with the certificate's.

    The conclusion that is confirmed is the weaker of the two. It is no stronger than that of the fresh rollouts alone, and so has
    the stated confidence whatever the issuer did.
    """
    evidence = gather(replace(test, key=key), say)
    changed = {} if test.protocol.sequential else _unlike(certificate.evidence, evidence)
    now, then = conclude(test.protocol, evidence), certificate.conclusion
    if now.outcome != then.outcome:
        changed["outcome"] = f"is {then.outcome!r} in the certificate; fresh rollouts give {now.outcome!r}"
    return Replay(changed, weaker(then, now, CLAIMS[test.protocol.claim].larger_is_stronger))


def _unlike(then: dict[str, tuple[float, ...]], now: dict[str, list[float]]) -> Changes:
    """Columns with another distribution, by a two-sample Kolmogorov–Smirnov test."""
    found = {}
    for name in SAMPLED:
        if name in then and name in now and (p := ks_2samp(then[name], now[name]).pvalue) < DIFFERENT:
            found[name] = f"are not distributed like fresh ones (p = {p:.1g})"
    return found


def platform_here() -> dict[str, str]:
    """The platform of this process; results are compared bit by bit only between equal platforms.

    >>> platform_here()["jax_enable_x64"]
    'False'
    """
    flags = {flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith("--xla_dump")}
    return {
        "architecture": platform.machine(),
        "instruction set": _instruction_set(),
        "cores": str(machine()["cores"]),
        "jaxlib": jax.lib.__version__,
        "XLA_FLAGS": " ".join(sorted(flags)),
        **{name: str(getattr(jax.config, name, None)) for name in SETTINGS},
    }


def _instruction_set() -> str:
    """Names of the vector instruction sets of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    listed = [line.split(":", 1)[1] for line in lines if line.lower().startswith(("flags", "features"))]
    return " ".join(sorted(word for word in "".join(listed[:1]).split() if VECTOR.match(word)))
