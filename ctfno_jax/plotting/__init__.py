"""Pictures: arrays in, Figure out. The only importer of matplotlib."""
