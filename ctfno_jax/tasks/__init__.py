"""Tasks: what is learned from what. A task is the only place where data, model, transform, loss and metrics meet."""
