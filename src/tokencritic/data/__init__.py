"""Data: image sources, token arrays on disk, and the order in which training sees them."""
