"""Files of data sets, checked while they are read."""
