"""`python -m contextc` is the `contextc` command."""

from contextc.cli import main

main()
