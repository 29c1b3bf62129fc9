"""Sampling: the loop, its scorers, and what is built on them. `settings.py` is importable without torch."""
