"""Flax modules: their fields are the hyper-parameters, their bodies call ``ops``."""
