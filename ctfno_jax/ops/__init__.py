"""Pure functions on arrays: no Flax, no configuration, no input or output."""
