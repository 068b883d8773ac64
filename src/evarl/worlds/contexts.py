"""Contexts: numbers that vary from site to site, are fixed within an episode, and are hidden from the policy.

A world lists in `parameters` what may vary. A family of worlds is one world with `contexts`, which say how some of these
parameters are drawn; the others keep their defaults. A context is a vector of numbers, one for each entry of `contexts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evarl.errors import InputError, unknown_name


@dataclass(frozen=True)
class ContextParameter:
    """A number of a world that may vary from site to site."""

    name: str
    default: float
    low: float
    """Least and greatest value that the world allows."""
    high: float
    description: str = ""
    whole: bool = False
    """Whether only whole numbers make sense, so that it is drawn from a list."""

    @property
    def example(self) -> str:
        """A context over everything that the world allows.

        >>> ContextParameter("slip", 0.0, 0.0, 0.9).example, ContextParameter("table", 0.0, 0.0, 3.0, whole=True).example
        ('slip=0:0.9', 'table=0,3')
        """
        return f"{self.name}={self.low:g}{',' if self.whole else ':'}{self.high:g}"


@dataclass(frozen=True)
class Context:
    """How one hidden parameter is drawn: uniformly from a range, or from a list of values that are equally likely.

    >>> str(Context("slip", 0.0, 0.3)), str(Context("bridge", 0.15, 0.9, (0.15, 0.9)))
    ('slip=0:0.3', 'bridge=0.15,0.9')
    """

    name: str
    low: float
    high: float
    values: tuple[float, ...] = ()
    """In ascending order; empty: uniform between low and high."""

    def __str__(self) -> str:
        numbers = [repr(x).removesuffix(".0") for x in self.values or (self.low, self.high)]
        return f"{self.name}={(',' if self.values else ':').join(numbers)}"

    def allows(self, value: float) -> bool:
        """Whether a value can be drawn, up to rounding."""
        slack = 1e-6 * max(1.0, abs(value))
        if self.values:
            return any(abs(value - known) <= slack for known in self.values)
        return self.low - slack <= value <= self.high + slack


def parse_contexts(texts: Sequence[str], parameters: Sequence[ContextParameter], world: str) -> tuple[Context, ...]:
    """Contexts written as "NAME=LOW:HIGH" or "NAME=A,B,C", for a world with these parameters.

    >>> parse_contexts(["slip=0:0.3"], [ContextParameter("slip", 0.0, 0.0, 0.9)], "navigation")
    (Context(name='slip', low=0.0, high=0.3, values=()),)
    """
    found: dict[str, Context] = {}
    for text in texts:
        name, values, between = _parsed(text, parameters, world)
        if name in found:
            raise InputError(f"context: {name} is given twice; one range or list is allowed")
        low, high = min(values), max(values)
        if between and not values[0] < values[1]:
            raise InputError(f"context: {text!r:.100} is not allowed; LOW must be below HIGH")
        found[name] = Context(name, low, high, () if between else tuple(sorted(set(values))))
    return tuple(found.values())


def parse_site(texts: Sequence[str], contexts: Sequence[Context], world: str) -> Float[np.ndarray, " P"] | None:
    """One context, written as "NAME=VALUE" for each of the contexts; None if nothing is given."""
    if not texts:
        return None
    names = [context.name for context in contexts]
    if not names:
        raise InputError(f"context: {world} was trained without contexts; none can be given")
    found: dict[str, float] = {}
    for text in texts:
        name, _, written = text.partition("=")
        if name not in names:
            raise unknown_name("context", name, names)
        found[name] = _number(written, text)
    if missing := [name for name in names if name not in found]:
        raise InputError(f"context: {', '.join(missing)} is missing; give NAME=VALUE for each of {', '.join(names)}")
    return np.asarray([found[name] for name in names], np.float32)


def outside_training(site: Float[np.ndarray, " P"], contexts: Sequence[Context]) -> list[str]:
    """Sentences about the numbers of a site that these contexts never draw.

    >>> outside_training(np.array([0.5]), [Context("bridge", 0.15, 0.9, (0.15, 0.9))])
    ['bridge=0.5 is never drawn in training (bridge=0.15,0.9)']
    """
    outside = [(one, value) for one, value in zip(contexts, site.tolist(), strict=True) if not one.allows(value)]
    return [f"{one.name}={value:g} is never drawn in training ({one})" for one, value in outside]


def draw_contexts(contexts: Sequence[Context], key: Array, count: int) -> Float[Array, "C P"]:
    """Contexts of `count` sites, independent of each other."""
    columns = []
    for context, own in zip(contexts, jax.random.split(key, max(1, len(contexts))), strict=True):
        if context.values:
            index = jax.random.randint(own, (count,), 0, len(context.values))
            columns.append(jnp.asarray(context.values, jnp.float32)[index])
        else:
            columns.append(jax.random.uniform(own, (count,), minval=context.low, maxval=context.high))
    return jnp.stack(columns, axis=1)


def spread_contexts(contexts: Sequence[Context], count: int) -> Float[np.ndarray, "C P"]:
    """Contexts that represent how they are drawn, always the same: each in equal shares, combined at random.

    >>> spread_contexts([Context("slip", 0.0, 0.4), Context("bridge", 0.1, 0.9, (0.1, 0.9))], 4).shape
    (4, 2)
    >>> sorted(spread_contexts([Context("slip", 0.0, 1.0)], 4)[:, 0].tolist())
    [0.125, 0.375, 0.625, 0.875]
    """
    generator, columns = np.random.default_rng(0), []
    for context in contexts:
        share = generator.permutation((np.arange(count) + 0.5) / count)
        listed = np.asarray(context.values)
        between = context.low + (context.high - context.low) * share
        columns.append(listed[(share * len(listed)).astype(int)] if context.values else between)
    return np.stack(columns, axis=1).astype(np.float32)


def standardised(contexts: Sequence[Context], context: Float[Array, "*batch P"]) -> Float[Array, "*batch P"]:
    """A context in units of its range, from −1 to 1: what a critic that sees it is given."""
    middle = np.asarray([(one.low + one.high) / 2 for one in contexts], np.float32)
    half = np.asarray([max((one.high - one.low) / 2, 1e-6) for one in contexts], np.float32)
    shape = (1,) * (context.ndim - 1) + (-1,)
    return (context - middle.reshape(shape)) / half.reshape(shape)


def site_values(
    parameters: Sequence[ContextParameter], contexts: Sequence[Context], context: Float[Array, " P"]
) -> dict[str, Array | float]:
    """The value of every parameter at one site: the context's where it varies, the default elsewhere."""
    varying = {one.name: context[index] for index, one in enumerate(contexts)}
    return {parameter.name: parameter.default for parameter in parameters} | varying


def around(name: str, default: float, description: str = "") -> ContextParameter:
    """A parameter that may be half to twice its default; a probability is at most 1, a positive whole number at least 1.

    >>> around("mass", 2.0).example, around("fail_prob", 0.8).example, around("interval", 5).example
    ('mass=1:4', 'fail_prob=0.4:1', 'interval=2,10')
    """
    low, high = sorted((0.5 * default, 2.0 * default))
    if isinstance(default, int):
        least = max(1, default // 2) if default > 0 else low
        return ContextParameter(name, default, least, high, description, whole=True)
    return ContextParameter(name, default, low, min(high, 1.0) if "prob" in name else high, description)


def _parsed(text: str, parameters: Sequence[ContextParameter], world: str) -> tuple[str, list[float], bool]:
    """Name and numbers of a context, and whether they are the ends of a range."""
    name, equals, written = text.partition("=")
    if not parameters:
        raise InputError(f"context: {world} has nothing that can vary; `evarl worlds NAME` lists what a world has")
    known = {parameter.name: parameter for parameter in parameters}
    if name not in known:
        raise unknown_name("context", name, known)
    between = ":" in written
    parts = written.split(":" if between else ",")
    if not equals or (between and len(parts) != 2):
        raise InputError(f"context: {text!r:.100} is not allowed; must be NAME=LOW:HIGH or NAME=A,B,C")
    values, allowed = [_number(part, text) for part in parts], known[name]
    if outside := [value for value in values if not allowed.low <= value <= allowed.high]:
        raise InputError(
            f"context: {name}={outside[0]:g} is not allowed; {world} takes {allowed.low:g} to {allowed.high:g} "
            f"(default {allowed.default:g})"
        )
    if allowed.whole and (between or not all(value.is_integer() for value in values)):
        raise InputError(f"context: {text!r:.100} is not allowed; must be whole numbers, as in {allowed.example}")
    return name, values, between


def _number(written: str, text: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise InputError(f"context: {text!r:.100} is not allowed; must be NAME= and finite numbers")
    return value
