"""`python -m evarl`: the same as the command `evarl`."""

from evarl.cli.main import main

if __name__ == "__main__":
    main()
