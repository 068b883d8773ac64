"""A Ray cluster that was started by others, whose address and token are needed: as a user would, in processes of their own."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from evarl.studies.catalogue import study
from evarl.studies.jobs import Store
from evarl.studies.scales import SMOKE

pytestmark = pytest.mark.slow
EVARL = [sys.executable, "-c", "from evarl.cli.main import main; main()"]
TOKENS = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
WAIT_SECONDS = 120.0


def environment(home: Path, token: str | None) -> dict[str, str]:
    """Of a user whose home is empty, with a token or without."""
    mine = {name: value for name, value in os.environ.items() if name not in TOKENS}
    mine |= {"HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0"}
    return mine | ({} if token is None else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token})


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def cluster(folder: Path, token: str):
    """The address of a cluster of one node, which asks for the token; it ends with the context."""
    port = free_port()
    ray = Path(sys.executable).with_name("ray")
    command = [str(ray), "start", "--head", "--block", f"--port={port}", "--node-ip-address=127.0.0.1", "--num-cpus=1"]
    command += ["--include-dashboard=false", "--object-store-memory=104857600", f"--temp-dir={folder / 'r'}"]
    with (folder / "head.txt").open("wb") as said:
        head = subprocess.Popen(
            command, env=environment(folder, token), stdout=said, stderr=said, start_new_session=True
        )
    try:
        until = time.monotonic() + WAIT_SECONDS
        while not listens(port):
            assert head.poll() is None, (folder / "head.txt").read_text()
            assert time.monotonic() < until
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        head.send_signal(signal.SIGTERM)
        try:
            head.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)  # its own group: the head that was started above and its children
            head.wait()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A short path: that of a socket inside it may have a hundred characters."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'evarl[ray]'")
    folder = Path("/tmp") / f"evarl-ray-{secrets.token_hex(4)}"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=False)


def reproduce(address, out, home, token):
    command = [*EVARL, "reproduce", "tabular", "--scale", "smoke", "--engine", "ray", "--address", address]
    return subprocess.run(
        [*command, "--out", str(out)], env=environment(home, token), capture_output=True, text=True, timeout=300
    )


def test_a_cluster_that_asks_for_a_token(home, tmp_path):
    """With the token the study is done there; with another one and without any it is one line, and nothing is left behind."""
    token = secrets.token_hex(32)
    (job,) = study("tabular").jobs(SMOKE)
    with cluster(home, token) as address:
        for wrong in (None, secrets.token_hex(32)):
            refused = reproduce(address, tmp_path / "refused", home, wrong)
            assert refused.returncode == 2, refused.stderr
            (line,) = [one for one in refused.stderr.splitlines() if one.startswith("evarl: ")]
            assert line.startswith(f"evarl: engine: no Ray at {address}: ")
            assert "oken" in line
            assert not list((tmp_path / "refused").iterdir())
        done = reproduce(address, tmp_path / "done", home, token)
        assert done.returncode == 0, done.stderr
        assert Store(tmp_path / "done").finished(job)
        assert token not in done.stdout + done.stderr + refused.stderr
