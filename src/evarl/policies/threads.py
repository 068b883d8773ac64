"""PyTorch on one thread."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute on one thread, without gradients.

    JAX calls policies from threads of its own, where PyTorch's pool of threads is fifteen times slower than one; and sums do not
    depend on the number of cores.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(before)
