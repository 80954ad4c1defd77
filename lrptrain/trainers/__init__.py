"""What the callbacks of every trainer share: finding the model, checks, failures, processes and run folders."""
