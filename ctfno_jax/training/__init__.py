"""Loss, step and loop; knows neither models nor data, only an apply function and batches."""
