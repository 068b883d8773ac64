"""Outside policies from functions of NumPy, from PyTorch, and from whatever is recognised."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from evarl.errors import InputError
from evarl.policies.outside import Gives, OutsidePolicy, source_of, structure_of
from evarl.policies.stable_baselines3 import from_stable_baselines3
from evarl.policies.threads import one_thread
from evarl.settings import conforming


def from_numpy(
    function: Callable[[np.ndarray], Any],
    gives: Gives = "probabilities",
    parameters: Mapping[str, Any] | None = None,
    description: str | None = None,
    first_action: int | None = None,
) -> OutsidePolicy:
    """A policy from a function of observations [B, ...] of NumPy, which `gives` probabilities or what else `Gives` lists.

    `parameters` are arrays, by name, that the function uses; certificates state the SHA-256 of these and of the source file in
    which the function is defined. Continuous actions are in the world's units, and discrete actions are the environment's own
    numbers, such as 5 to 7 in Discrete(3, start=5), unless `first_action` says from which number they count.

    >>> policy = from_numpy(lambda seen: np.full((len(seen), 2), 0.5))
    >>> policy.gives, policy.deterministic
    ('probabilities', False)
    """
    if not callable(function):
        raise InputError(f"function: is a {type(function).__name__}; must be a function of observations")
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"
    told = f"function {name} ({gives})" if description is None else description
    code = source_of(function) + _counted(first_action)
    return OutsidePolicy(function, gives, told, dict(parameters or {}), code, first_action=first_action)


def from_torch(
    module: Any,
    gives: Gives = "logits",
    parameters: Any = None,
    description: str | None = None,
    first_action: int | None = None,
) -> OutsidePolicy:
    """A policy from a module of PyTorch, or from a function of tensors, which `gives` logits or what else `Gives` lists.

    It is called with observations [B, ...], floats in 32 bits, without gradients and in evaluation mode. It may also return a
    `torch.distributions` object: Categorical, or Normal for continuous actions in the world's units. For a function,
    `parameters` is the module whose weights it uses, or arrays by name. `first_action` is as in `from_numpy`.
    """
    import torch

    if not callable(module):
        raise InputError(f"module: is a {type(module).__name__}; must be a module or function of PyTorch")
    weights = module if isinstance(module, torch.nn.Module) else parameters
    arrays = weights.state_dict() if isinstance(weights, torch.nn.Module) else dict(weights or {})
    device = next((one.device for one in arrays.values() if isinstance(one, torch.Tensor)), torch.device("cpu"))

    def function(observation: np.ndarray) -> Any:
        floats = observation.dtype.kind == "f"
        seen = torch.as_tensor(observation.astype(np.float32) if floats else observation, device=device)
        if isinstance(weights, torch.nn.Module):
            weights.eval()
        with one_thread():
            return _plain(module(seen), gives)

    structure = structure_of(weights) if isinstance(weights, torch.nn.Module) else ""
    told = f"PyTorch {type(module).__name__} ({gives})" if description is None else description
    held = {name: _array(one) for name, one in arrays.items()}
    code = structure + source_of(module) + _counted(first_action)
    versions = {"torch": torch.__version__}
    return OutsidePolicy(function, gives, told, held, code, versions, first_action=first_action)


def wrap_policy(policy: Any, **options: Any) -> OutsidePolicy:
    """An outside policy from a model of Stable-Baselines3, a module of PyTorch, or a function of NumPy.

    Options are those of `from_stable_baselines3`, `from_torch` and `from_numpy`.
    """
    if isinstance(policy, OutsidePolicy):
        return policy
    packages = {one.__module__.partition(".")[0] for one in type(policy).__mro__}
    if hasattr(policy, "predict") and hasattr(policy, "policy"):
        return from_stable_baselines3(policy, **options)
    if "torch" in packages:
        return from_torch(policy, **options)
    if callable(policy):
        return from_numpy(policy, **options)
    raise InputError(
        f"policy: is a {type(policy).__name__}; must be a model of Stable-Baselines3, a module of PyTorch, or a function"
    )


def _counted(first_action: int | None) -> str:
    """What identifies a policy beside its code, where it is said from which number its actions count."""
    if first_action is None:
        return ""
    return f"\nfirst_action={conforming('first-action', first_action, int)}"


def _plain(found: Any, gives: Gives) -> Any:
    """Tensors, or a distribution, as arrays."""
    inner = getattr(found, "base_dist", found)  # of Independent
    if gives == "logits" and hasattr(inner, "logits"):
        return _array(inner.logits)
    if gives == "probabilities" and hasattr(inner, "probs"):
        return _array(inner.probs)
    if gives in ("gaussian", "squashed") and hasattr(inner, "loc") and hasattr(inner, "scale"):
        return _array(inner.loc), np.log(_array(inner.scale))
    if isinstance(found, tuple | list):
        return tuple(_array(one) for one in found)
    return _array(found)


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)
