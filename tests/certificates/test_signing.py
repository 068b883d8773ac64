"""Signatures: whoever holds a public key can tell who issued a certificate."""

import dataclasses
import stat
from pathlib import Path

import pytest

import evarl
from evarl.certificates.certificate import load, save
from evarl.certificates.signing import Signature, sign
from evarl.cli.main import call
from tests.evaluation.tiny import train_tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return train_tiny(tmp_path_factory.mktemp("trained") / "run").path


@pytest.fixture
def keys(tmp_path, capsys) -> tuple[Path, Path]:
    assert call(["keygen", str(tmp_path / "issuer")]) == 0
    capsys.readouterr()
    return tmp_path / "issuer", tmp_path / "issuer.pub"


def test_a_private_key_is_for_its_owner_and_is_never_overwritten(keys, capsys):
    private, _ = keys
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    before = private.read_bytes()
    assert call(["keygen", str(private)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert private.read_bytes() == before


def test_a_signature_says_who_issued_the_certificate(run, keys, tmp_path, capsys):
    private, public = keys
    issued = evarl.issue_certificate(run, evarl.Terms(rollouts=20))
    path = str(issued.path)
    assert call(["verify", path, "--key", str(public), "--files-only"]) == 1
    assert "signature: is missing; the certificate is not signed" in capsys.readouterr().out
    evarl.issue_certificate(run, evarl.Terms(rollouts=20), sign_with=private)  # the same certificate, signed
    certificate, signature = load(issued.path)
    assert certificate == issued.certificate
    assert call(["verify", path, "--key", str(public), "--files-only"]) == 0
    assert f"signed by {signature.key}" in capsys.readouterr().out
    assert call(["keygen", str(tmp_path / "other")]) == 0
    assert call(["verify", path, "--key", str(tmp_path / "other.pub"), "--files-only"]) == 1
    assert "signature: is of another key" in capsys.readouterr().out
    # A signature taken from another certificate, and one that claims somebody else's key.
    for wrong in (sign("0" * 64, private), Signature(sign("0" * 64, tmp_path / "other").key, signature.value)):
        save(issued.path, certificate, wrong)
        assert call(["verify", path, "--files-only"]) == 1
        assert "signature: does not fit the certificate" in capsys.readouterr().out
    save(issued.path, certificate, dataclasses.replace(signature, value="no hexadecimal"))
    assert call(["verify", path, "--files-only"]) == 1


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_refused_before_anything_is_rolled_out(run, keys, tmp_path, capsys, content):
    file = tmp_path / "odd"
    file.write_bytes(content)
    entries = (run / "certificates").exists() and (run / "certificates/ledger.json").read_bytes()
    assert call(["certify", str(run), "--rollouts", "21", "--again", "--sign", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert entries == ((run / "certificates").exists() and (run / "certificates/ledger.json").read_bytes())
    assert call(["certify", str(run), "--rollouts", "21", "--again", "--sign", str(keys[1])]) == 2
    assert "is not a private key" in capsys.readouterr().err
