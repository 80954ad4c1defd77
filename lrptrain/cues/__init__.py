"""Cues: what in the input may decide an answer, how samples swap it, and the test of what a model relies on."""
