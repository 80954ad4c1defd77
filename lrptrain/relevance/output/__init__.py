"""What of a model's output is explained."""
