"""Every result of the paper: what is run for it, what was found, and whether its claims hold."""
