"""Networks of other libraries on the data of our tables, each run in an environment of its own."""
