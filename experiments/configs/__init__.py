"""Settings of every cell, one file per experiment."""
