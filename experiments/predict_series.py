"""Answers of a latent run for the series of a CSV file, with a standard deviation for every value."""

import csv
import io
from pathlib import Path

import numpy as np

from ctfno_jax import files
from ctfno_jax.data.readers import csv_series
from ctfno_jax.predict import Predictor

HEADER = ("series", "time", "feature", "value", "std")


def write(predictor: Predictor, path: str | Path, times: np.ndarray, output: Path, *, num_draws: int) -> str:
    """Writes one line for every series, time and feature; returns what was done, with a note on times far out.

    Args:
      predictor: a latent run.
      path: file with the observations, in the form that the run was trained on.
      times: query times, the same for all series, in the unit of the file.
      output: file to write.
      num_draws: draws of the latent state that mean and standard deviation are taken over.
    """
    if output.suffix != ".csv":
        raise ValueError(f"--output must end in .csv for an input in CSV, got {output}")
    if predictor.description["task"] != "latent":
        raise ValueError(f"{path} holds series; the run reads arrays: give --input as .npy")
    features = tuple(predictor.description["channels"])
    table = csv_series.read(path, fewest=1)
    observed = csv_series.observations(table, features).packed()
    mean, std = predictor.forecast(observed, times, count=num_draws)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for i, name in enumerate(table.names):
        for j, time in enumerate(times):
            for k, feature in enumerate(features):
                writer.writerow([name, f"{time:.9g}", feature, f"{mean[i, j, k]:.7g}", f"{std[i, j, k]:.4g}"])
    files.make_directory(output.parent)
    files.write_text(output, text.getvalue())
    done = f"{output}: {len(table.names)} series at {len(times)} times, {len(features)} features"
    return "\n".join([*(f"note: {note}" for note in predictor.notes_on_times(times)), done])
