"""The `evarl` command line: one module per command."""
