"""Theory of a fixed linear evaluator: printed results, counter-examples, sound versions and a study of random tabular worlds."""
