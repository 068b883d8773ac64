"""The tables of `make bench`, from what was measured."""

from collections.abc import Mapping

import numpy as np

from benchmarks.catalogue import A2C, ALONE, FQE, HOST, IMPORTANCE, PARTS, RIVALS, ROLLOUTS, TRUTH
from benchmarks.race import Measured
from benchmarks.tables import Sheet, optional, ratio, spread, thousands

ESTIMATES = (TRUTH, FQE, IMPORTANCE)
STEPS = ("collect", "assess", "evaluator", "policy")

Worlds = Mapping[str, Mapping[str, Measured]]
"""World → program → figures."""


def sheets(worlds: Worlds) -> list[Sheet]:
    """All tables that have something to say."""
    worlds = {name: {k: one for k, one in found.items() if "failed" not in one} for name, found in worlds.items()}
    made = [speeds(worlds), parts(worlds), rivals(worlds), estimates(worlds), costs(worlds)]
    return [sheet for sheet in made if sheet.rows]


def rates(measured: Measured) -> np.ndarray:
    """Steps per second of each repetition."""
    return measured["steps"] / np.asarray(measured["seconds"])


def speeds(worlds: Worlds) -> Sheet:
    """Training beside the environment only, and evaluation-aware training beside plain A2C."""
    counts = {len(one["seconds"]) for found in worlds.values() for one in found.values()}
    repeats = " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else "no"
    sheet = Sheet(
        f"Steps per second: median (quartiles) of {repeats} interleaved repetitions. Ratios are taken within repetitions: "
        "the speed relative to the environment only, the time relative to plain A2C, and the same at an equal number of "
        "environment steps, where those of assessments are counted too.",
        ("world", "program", "steps per second", "÷ environment only", "time ÷ A2C", "at equal steps"),
    )
    for world, found in worlds.items():
        for name, one in found.items():
            if name in (*ESTIMATES, *RIVALS) or name.endswith(PARTS):
                continue
            alone = spread(rates(one) / rates(found[ALONE]), ratio) if ALONE in found else ""
            plain = rates(found[A2C]) / rates(one) if A2C in found else None
            share = one["steps"] / (one["steps"] + one.get("assessment_steps", 0))
            slower = ("", "") if plain is None else (spread(plain, ratio), spread(share * plain, ratio))
            # on the host it is another world
            ratios = {ALONE: ("", "", ""), ROLLOUTS: (alone, "", ""), A2C: (alone, "", ""), HOST: ("", "", "")}.get(
                name, (alone, *slower)
            )
            sheet.add(world, name, spread(rates(one), thousands), *ratios)
    return sheet


def parts(worlds: Worlds) -> Sheet:
    """Where the time of an update goes."""
    sheet = Sheet(
        "Milliseconds per update: the parts, each in a loop of its own, what is left of the whole, and the whole.",
        ("world", "program", *STEPS, "rest", "whole"),
    )
    for world, found in worlds.items():
        for name in [name for name in found if name + PARTS in found]:
            timed, whole = found[name + PARTS], milliseconds(found[name])
            by_part = {part: 1e3 * np.asarray(s) / timed["updates"] for part, s in timed["parts"].items()}
            rest = whole - sum(by_part.values())
            cells = [spread(by_part[part], _short) if part in by_part else "" for part in STEPS]
            sheet.add(world, name, *cells, spread(rest, _short), spread(whole, _short))
    return sheet


def milliseconds(measured: Measured) -> np.ndarray:
    """Of one update, for each repetition."""
    return 1e3 * np.asarray(measured["seconds"]) / measured["updates"]


def rivals(worlds: Worlds) -> Sheet:
    """Peers beside ours that do the same work."""
    sheet = Sheet(
        "Beside other libraries, in steps per second; the last column is our speed relative to theirs, within repetitions.",
        ("world", "peer", "its speed", "ours", "our speed", "ours ÷ its"),
    )
    for world, found in worlds.items():
        for peer in [name for name in found if name in RIVALS]:
            for name in [name for name in RIVALS[peer] if name in found]:
                theirs, ours = rates(found[peer]), rates(found[name])
                cells = (spread(theirs, thousands), name, spread(ours, thousands), spread(ours / theirs, ratio))
                sheet.add(world, peer, *cells)
    return sheet


def estimates(worlds: Worlds) -> Sheet:
    """What comes after training."""
    sheet = Sheet(
        "Ground truth in steps per second; off-policy evaluation in transitions per second: of the minibatches of fitted Q "
        "evaluation, and of the log for importance sampling (four forms, intervals included).",
        ("world", "program", "per second", "÷ environment only"),
    )
    for world, found in worlds.items():
        for name in [name for name in found if name in ESTIMATES]:
            beside = name == TRUTH and ALONE in found
            share = spread(rates(found[name]) / rates(found[ALONE]), ratio) if beside else ""
            sheet.add(world, name, spread(rates(found[name]), thousands), share)
    return sheet


def costs(worlds: Worlds) -> Sheet:
    """What is paid before the first step, and memory."""
    sheet = Sheet(
        "Seconds until a program is ready, without and with a cache of compiled programs (imports are not counted, the base "
        "policy of an assessment is). In GiB, what the compiler plans for, and the peak of the process, compilation included and "
        "not.",
        ("world", "program", "first start", "cached", "plan", "first peak", "cached peak"),
    )
    for world, found in worlds.items():
        for name in [name for name in found if not name.endswith(PARTS)]:
            one = found[name]
            first, cached = (one["compile_seconds"], one.get("peak_gib")), (None, None)
            if "cold_seconds" in one:
                first, cached = (one["cold_seconds"], one["cold_peak_gib"]), first
            starts = [optional(time, "{:.1f}".format) for time in (first[0], cached[0])]
            peaks = [optional(peak, "{:.2f}".format) for peak in (first[1], cached[1])]
            sheet.add(world, name, *starts, optional(one.get("program_gib"), "{:.3f}".format), *peaks)
    return sheet


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.2f}"
