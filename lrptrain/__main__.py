"""`python -m lrptrain` is the command line."""

from lrptrain.cli import main

main()
