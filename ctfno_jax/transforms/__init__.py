"""Pure JAX functions that encode fields before a network and decode its output."""
