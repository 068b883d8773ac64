"""`evarl keygen FILE`: make a key pair for signing certificates."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from evarl.cli.parsing import parse


@dataclass(frozen=True)
class Keygen:
    """Make an Ed25519 key pair: the private key in FILE, readable by you only, the public key in FILE.pub.

    Sign with `evarl certify RUN --sign FILE`; give FILE.pub to those who verify with `evarl verify CERTIFICATE --key FILE.pub`.
    """

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """File of the private key; it must not exist yet."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, make the keys and print where they are."""
    command = parse(Keygen, arguments, "evarl keygen", Keygen(tyro.MISSING))

    from evarl.certificates.signing import new_key

    public = new_key(Path(command.file))
    print(f"private key in {command.file}, which must be kept secret; public key in {public}")
