"""What is explained, which parts of it are tokens, and where attention mixes them."""
