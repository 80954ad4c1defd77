"""Propagation: rules per operation, the composites that choose among them, and the walk back over the tape."""
