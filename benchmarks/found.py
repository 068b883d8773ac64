"""What a simulation found of a claim."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Found:
    """Whether a claim held in each of independent repetitions, and its gaps to the truth."""

    covered: np.ndarray
    gaps: np.ndarray

    @property
    def coverage(self) -> float:
        """Share of repetitions in which the claim held."""
        return float(np.mean(self.covered))

    @property
    def error(self) -> float:
        """Standard error of the coverage."""
        return float(np.sqrt(self.coverage * (1 - self.coverage) / len(self.covered)))

    def cell(self) -> str:
        """A cell of the table."""
        return f"{100 * self.coverage:.1f} ± {100 * self.error:.1f}, {np.mean(self.gaps):.3f}"
