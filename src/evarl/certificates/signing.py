"""Ed25519 signatures of certificates. Keys are PEM files, as OpenSSL makes them."""

import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from evarl.errors import FileError, InputError
from evarl.storage.files import read_regular

PURPOSE = "evarl certificate\n"
"""Prefix of the signed text, so that a signature cannot be used for anything else."""
LONGEST = 10_000
"""Bytes; maximum accepted size of a key file."""


@dataclass(frozen=True)
class Signature:
    """A signature of a certificate's SHA-256."""

    key: str
    """The public key, 32 bytes in hexadecimal."""
    value: str
    """64 bytes in hexadecimal."""


def new_key(path: Path) -> Path:
    """Make a key pair: the private key in `path`, readable by its owner only, and the public key in `path`.pub."""
    public_path = path.with_name(f"{path.name}.pub")
    for one in (path, public_path):
        if one.exists():
            raise InputError(f"{one}: exists already; choose another name, since a lost key cannot be made again")
    private = Ed25519PrivateKey.generate()
    plain = serialization.NoEncryption()
    secret = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret)
        public_path.write_bytes(public)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
    return public_path


def sign(digest: str, private_key: Path) -> Signature:
    """Sign a SHA-256 with the private key in a PEM file."""
    key = load_private_key(private_key)
    return Signature(key.public_key().public_bytes_raw().hex(), key.sign(_message(digest)).hex())


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """The private key in a PEM file."""
    try:
        key = serialization.load_pem_private_key(read_regular(path, LONGEST), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"sign: {path} is not a private key without password; make one with evarl keygen") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"sign: {path} is a key of another kind; must be Ed25519, as made by evarl keygen")
    return key


def public_key(path: Path) -> str:
    """The public key in a PEM file, in hexadecimal."""
    try:
        key = serialization.load_pem_public_key(read_regular(path, LONGEST))
    except (ValueError, UnsupportedAlgorithm) as error:
        file = "the file ending in .pub that evarl keygen made"
        raise InputError(f"key: {path} is not a public key; must be {file}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"key: {path} is a key of another kind; must be Ed25519, as made by evarl keygen")
    return key.public_bytes_raw().hex()


def is_valid(signature: Signature, digest: str) -> bool:
    """Whether a signature of this SHA-256 was made with the key that it names."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.key))
        key.verify(bytes.fromhex(signature.value), _message(digest))
    except (InvalidSignature, ValueError):
        return False
    return True


def _message(digest: str) -> bytes:
    return f"{PURPOSE}{digest}".encode()
