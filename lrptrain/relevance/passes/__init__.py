"""One run of a model: recorded, watched for its gradient alone, or done again."""
