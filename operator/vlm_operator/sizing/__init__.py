"""The sizing engine: arithmetic from a workload to a plan.

No clock, no files, no network, no logging and no unseeded randomness: the same inputs give the same plan on
every machine. ``planning.py`` is the only door in from outside.
"""
