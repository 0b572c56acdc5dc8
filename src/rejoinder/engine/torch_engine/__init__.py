"""The in-process PyTorch engine."""
