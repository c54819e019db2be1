"""Command-line programs: flags to config to library calls to result.json; no numerics here."""
