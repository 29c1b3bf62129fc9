"""Sampling: the loop, its entry points, scorers, settings, traces and rejection.

`settings.py` is importable without torch.
"""
