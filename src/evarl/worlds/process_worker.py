"""The other side of `evarl.worlds.processes`: some environments of a world, in a process of their own."""

import mmap
import os
import pickle
import signal
import sys
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from evarl.errors import EvarlError, WorldError
from evarl.storage.files import reason
from evarl.worlds.processes import told
from evarl.worlds.world import HostEnvironments


def main() -> None:
    """Serve the socket whose number is the first argument, until it is closed; the second is that of the shared memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that was started by the user
    number, memory = map(int, sys.argv[1:])
    connection = Connection(number)
    try:
        described, (first, last, shape, dtype) = pickle.loads(connection.recv_bytes())
        table = np.frombuffer(mmap.mmap(memory, 0), dtype, int(np.prod(shape))).reshape(shape)[first:last]
        os.close(memory)
        environments = _opened(connection, described, first, last)
        if environments is not None:
            with closing(environments):
                _serve(connection, environments, table)
    except (EOFError, OSError):  # the other side has gone
        pass


def _opened(connection: Connection, described: bytes, first: int, last: int) -> HostEnvironments | None:
    """The environments, or None if they cannot be opened, which the other side is told."""
    try:
        environments: HostEnvironments = pickle.loads(described).open(last - first)
    except Exception as error:  # whatever the user's code raises
        known = error if isinstance(error, EvarlError) else WorldError(f"world: cannot be opened: {reason(error)}")
        connection.send_bytes(pickle.dumps((None, told(known))))
        return None
    environments.first = first
    connection.send_bytes(pickle.dumps((None, None)))
    return environments


def _serve(connection: Connection, environments: HostEnvironments, table: np.ndarray) -> None:
    """Answer messages."""
    while True:
        what, index, *arguments = pickle.loads(connection.recv_bytes())
        answer: Any = None
        try:
            if what == "step":
                step = environments.step(*arguments)
                table[:], answer = step.observation, tuple(step[1:])
            elif what == "place":
                environments.place(index, *arguments)
            else:
                table[index] = getattr(environments, what)(index, *arguments)
        except EvarlError as error:
            connection.send_bytes(pickle.dumps((None, told(error))))
            continue
        connection.send_bytes(pickle.dumps((answer, None)))


if __name__ == "__main__":
    main()
