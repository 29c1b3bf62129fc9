"""Pictures of what the models make."""
