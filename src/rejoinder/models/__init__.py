"""Model files: the embedded model, loading, tokenizers, attention and log-probabilities."""
