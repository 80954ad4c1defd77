"""Cues: what in the input may decide an answer, its exchange between samples, and the test of what a model reads."""
