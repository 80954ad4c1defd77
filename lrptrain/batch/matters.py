"""From when on a number says anything, in all tests of this package, where the user says nothing else."""

LEAST_EFFECT = 0.05
"""What a probability, or an accuracy, must move by to matter: five points in a hundred. Halved, 17 instead of 13
cues are named in models without one; doubled, 10. The cause is first in as many models
(`python -m experiments.benchmark.moved`)."""
LEVEL = 0.05
"""The level of a test: the convention (Fisher 1925). Half or twice of it changes no first name
(`python -m experiments.benchmark.moved`)."""
FEWEST_SAMPLES = 8
"""Of fewer samples no interval decides: Student's is that of a normal mean, and what is measured has bounds.
Half or twice as many change no first name (`python -m experiments.benchmark.moved`)."""
