"""What the paper proves, what of it is true, and the study of random tabular worlds that shows it."""
