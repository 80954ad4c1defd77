"""Experiments: a folder each, with its question, its command (`python -m experiments.NAME.run`) and its table."""
