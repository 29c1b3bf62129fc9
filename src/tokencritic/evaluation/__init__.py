"""Evaluation of generated images: features, metrics, tuning and diagnosis."""
