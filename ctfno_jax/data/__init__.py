"""Problems and their data: arrays with a seeded split."""
