"""A map as it is shown, and what is said of it."""
