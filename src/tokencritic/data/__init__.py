"""Data: image sources, token arrays on disk, and the order of training examples."""
