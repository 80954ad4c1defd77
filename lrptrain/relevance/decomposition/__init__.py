"""Decomposition: what every token contributes to every other in a block, by linear maps with fixed denominators."""
