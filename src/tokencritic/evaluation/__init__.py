"""How good generated images are: features, metrics, tuning and diagnosis."""
