"""Recording: a forward pass as a tape of torch functions, and what is tidied up on it."""
