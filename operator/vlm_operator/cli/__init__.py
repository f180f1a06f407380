"""vlmctl, the command line: ``main.py`` reads arguments, one module per command answers."""
