"""Certificates: tests of claims about a run's policies, fixed before the first rollout and kept with the run.

The statistics are in `evarl.bounds`, which works on plain arrays; here they are applied to worlds, policies and files.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evarl.certificates.certificate import Certificate, load, save
    from evarl.certificates.claims import CLAIMS, Claim
    from evarl.certificates.compare import Candidate, compare_policies
    from evarl.certificates.issue import Issued, issue_certificate
    from evarl.certificates.names import ClaimName
    from evarl.certificates.protocol import Protocol
    from evarl.certificates.terms import Terms
    from evarl.certificates.verify import Reliance, Verification, verify_certificate

_HOMES = {
    "CLAIMS": "claims",
    "Candidate": "compare",
    "Certificate": "certificate",
    "Claim": "claims",
    "ClaimName": "names",
    "Issued": "issue",
    "Protocol": "protocol",
    "Reliance": "verify",
    "Terms": "terms",
    "Verification": "verify",
    "compare_policies": "compare",
    "issue_certificate": "issue",
    "load": "certificate",
    "save": "certificate",
    "verify_certificate": "verify",
}
"""Public names and their modules: JAX is imported when a name that needs it is first used."""

__all__ = [
    "CLAIMS",
    "Candidate",
    "Certificate",
    "Claim",
    "ClaimName",
    "Issued",
    "Protocol",
    "Reliance",
    "Terms",
    "Verification",
    "compare_policies",
    "issue_certificate",
    "load",
    "save",
    "verify_certificate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evarl.certificates' has no attribute '{name}'")
    return getattr(importlib.import_module(f"evarl.certificates.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
