"""The monitor's work without Lightning: a fixed sample, its relevance and scores, and the record of an epoch."""
