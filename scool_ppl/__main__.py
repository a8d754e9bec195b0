"""`python -m scool_ppl` is the command `scool`."""

from scool_ppl.cli import main

if __name__ == "__main__":
    main()
