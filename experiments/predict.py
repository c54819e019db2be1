"""Queries a trained run: ``python -m experiments.predict --workdir=RUN --input=u0.npy --times=0.1,2 --output=u.npz``.

The input is a ``.npy`` array of initial states, ``(x,)``, ``(batch, x)`` or ``(batch, *space, channels)``, on any grid
that can carry the model's modes. For a run on series it is what was observed, ``(steps,)``, ``(batch, steps)`` or
``(batch, steps, features)``, and times count from the last observation. The output holds ``u`` as ``(batch, time,
*space, channels)``, ``times`` and ``u0``; a picture of the first sample is left beside it.
"""

from pathlib import Path

import numpy as np
from absl import flags

from ctfno_jax.plotting import fields as plots
from ctfno_jax.plotting import series as series_plots
from ctfno_jax.predict import is_series, load_predictor
from experiments import common, files

FLAGS = flags.FLAGS


def parse_times(text: str) -> np.ndarray:
    """Times from ``0.1,0.37,2`` or, evenly spaced with both ends, ``start:stop:count``."""
    try:
        if ":" in text:
            start, stop, count = text.split(":")
            if int(count) < 1:
                raise ValueError
            return np.linspace(float(start), float(stop), int(count))
        return np.asarray([float(part) for part in text.split(",")])
    except ValueError as error:
        raise ValueError(f"--times must look like 0.1,0.37,2.0 or start:stop:count, got {text!r}") from error


def as_states(array: np.ndarray, in_channels: int, num_space: int) -> np.ndarray:
    """``(batch, *space, channels)`` from an array that may lack the batch or, for one channel, the channel axis."""
    if array.ndim == num_space and in_channels == 1:
        return array[None, ..., None]
    if array.ndim == num_space + 1 and in_channels == 1 and array.shape[-1] != 1:
        return array[..., None]
    if array.ndim == num_space + 1 and array.shape[-1] == in_channels:
        return array[None]
    if array.ndim == num_space + 2 and array.shape[-1] == in_channels:
        return array
    raise ValueError(
        f"the input must hold initial states (batch, *space, channels) with {num_space} space axes and "
        f"{in_channels} channels, got shape {array.shape}"
    )


def main() -> None:
    for name in ("workdir", "input", "times", "output"):
        if not FLAGS[name].value:
            raise ValueError(f"--{name} is missing")
    times = parse_times(FLAGS.times)
    array = files.read_array(FLAGS.input)
    output = Path(FLAGS.output)
    if output.suffix != ".npz":
        raise ValueError(f"--output must end in .npz, got {output}")
    files.make_directory(output.parent)
    predictor = load_predictor(FLAGS.workdir)
    num_space = len(predictor.description["grid"])
    states = as_states(array, predictor.state_channels, num_space)
    u = predictor(states, times)
    files.write_npz(output, u=u, times=times, u0=states)
    print(f"{output}: u {u.shape} as (batch, time, *space, channels)")
    horizon = predictor.description.get("final_time")
    if horizon is not None and times.max() > horizon * (1 + 1e-6):
        print(f"note: times up to {times.max():g} lie beyond the training horizon of {horizon:g}")
    if is_series(predictor.config):
        order = np.argsort(times, kind="stable")
        title = f"{predictor.config.dataset.dataset}: {predictor.config.model.model}, first sample"
        figure = series_plots.curves(times[order], u[0, order], title=title)
        files.write_figure(output.with_suffix(".png"), figure)
        print(f"{output.with_suffix('.png')}: first sample")
    elif num_space == 1:
        order = np.argsort(times, kind="stable")
        title = f"{predictor.config.dataset.dataset}: {predictor.config.model.model}"
        figure = plots.snapshots(states[0, :, 0], u[0, order, :, 0], times[order], title=title)
        files.write_figure(output.with_suffix(".png"), figure)
        print(f"{output.with_suffix('.png')}: first sample")


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder of a finished or running training")
    flags.DEFINE_string("input", None, ".npy file with initial states")
    flags.DEFINE_string("times", None, "query times, as 0.1,0.37 or start:stop:count")
    flags.DEFINE_string("output", None, ".npz file to write")
    common.run_program(main)
