"""Files of recorded policies."""

from pathlib import Path

from evarl.assessment.assessment import Assessment
from evarl.errors import FileError
from evarl.learning.configuration import TrainConfig
from evarl.learning.played import Played, RecordSize, played_shapes
from evarl.learning.pretraining import Past
from evarl.runs.checks import check_finite
from evarl.storage.tensors import as_tree, load_arrays, save_tree

KIND = "record of policies"


def save_played(path: Path, played: Played) -> None:
    """Write records of policies; the assessment is a file of its own."""
    save_tree(path, (played.visited.policies, played.start), {"kind": KIND})


def load_played(path: Path, config: TrainConfig, assessment: Assessment, size: RecordSize, seeds: int) -> Played:
    """Read the records of so many seeds in a run with this configuration; others are refused."""
    arrays, about = load_arrays(path)
    if about.get("kind") != KIND:
        raise FileError(f"{path}: does not hold a {KIND}")
    shapes = played_shapes(config, assessment, size, seeds)
    visited, start = as_tree(path, arrays, (shapes.visited.policies, shapes.start))
    check_finite(path, (visited, start))
    return Played(Past(assessment, visited, shapes.visited.updates), start)
