"""The trainer: losses, batching, optimizer, checkpoints and the training loop."""
