"""Arrays with a seeded split; never a model."""
