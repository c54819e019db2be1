"""Queries a trained run: ``python -m experiments.predict --workdir=RUN --input=u0.npy --times=0.1,2 --output=u.npz``.

The input is a ``.npy`` array of initial states ``(batch, *space, channels)``, on any grid that can carry the model's
modes. The batch axis may be missing, and for one channel the channel axis. For a run on series, the input is the
observations ``(batch, steps, features)``, and times count from the last one. The output holds ``u`` as ``(batch, time,
*space, channels)``, ``times`` and ``u0``. A figure of the first sample is written beside it.

For a run on series of your own, the input is a ``.csv`` file of the form it was trained on, and so is the output: one
line for every series, time and feature, with a value and its standard deviation.
"""

from pathlib import Path

import numpy as np
from absl import flags

from ctfno_jax import files
from ctfno_jax.data.readers import npy
from ctfno_jax.plotting import fields as field_plots
from ctfno_jax.plotting import series as series_plots
from ctfno_jax.predict import Predictor, load_predictor
from experiments import predict_series, program

FLAGS = flags.FLAGS


def count_times(text: str) -> int:
    """Number of times that :func:`parse_times` returns; ValueError for text of another form."""
    try:
        if ":" in text:
            *ends, count = text.split(":")
            if len([float(end) for end in ends]) != 2 or int(count) < 1:
                raise ValueError
            return int(count)
        return len([float(part) for part in text.split(",")])
    except ValueError as error:
        raise ValueError(f"--times must look like 0.1,0.37,2.0 or start:stop:count, got {text!r}") from error


def parse_times(text: str) -> np.ndarray:
    """Times from ``0.1,0.37,2`` or, evenly spaced with both ends, ``start:stop:count``."""
    count = count_times(text)
    if ":" in text:
        start, stop, _ = text.split(":")
        with np.errstate(invalid="ignore"):  # infinities are refused with all other times
            return np.linspace(float(start), float(stop), count)
    return np.asarray([float(part) for part in text.split(",")])


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


def draw(predictor: Predictor, u0: np.ndarray, times: np.ndarray, u: np.ndarray):
    """Figure of the first sample."""
    about = predictor.description
    title = f"{about['title']}: {type(predictor.model).__name__}"
    if predictor.is_series:
        order = np.argsort(times, kind="stable")
        return series_plots.curves(times[order], u[0, order], title=f"{title}, first sample")
    return field_plots.answer(u[0], times, u0=u0[0], channels=about["channels"], title=title)


def main() -> None:
    for name in ("workdir", "input", "times", "output"):
        if not FLAGS[name].value:
            raise ValueError(f"--{name} is missing")
    output = Path(FLAGS.output)
    if Path(FLAGS.input).suffix == ".csv":
        count_times(FLAGS.times)
        predictor = load_predictor(FLAGS.workdir)
        times = parse_times(FLAGS.times)
        print(predict_series.write(predictor, FLAGS.input, times, output, num_draws=FLAGS.num_draws))
        return
    if output.suffix != ".npz":
        raise ValueError(f"--output must end in .npz, got {output}")
    num_times = count_times(FLAGS.times)
    array = npy.read(FLAGS.input)
    files.make_directory(output.parent)
    predictor = load_predictor(FLAGS.workdir)
    states = as_states(array, predictor.in_channels, predictor.num_space)
    predictor.check_size(states.shape, num_times)
    times = parse_times(FLAGS.times)
    u = predictor(states, times)
    files.write_npz(output, u=u, times=times, u0=states)
    print(f"{output}: u {u.shape} as (batch, time, {'' if predictor.is_series else '*space, '}channels)")
    for note in predictor.notes(states, times):
        print(f"note: {note}")
    if not np.all(np.isfinite(u)):
        print(f"note: {np.sum(~np.isfinite(u))} of the {u.size} values of u are not finite")
    figure = output.with_suffix(".png")
    files.write_figure(figure, draw(predictor, states, times, u))
    print(f"{figure}: first sample")


def define_flags() -> None:
    flags.DEFINE_string("workdir", None, "folder of a finished or running training")
    flags.DEFINE_string("input", None, ".npy file with initial states, or .csv file with series")
    flags.DEFINE_string("times", None, "query times, as 0.1,0.37 or start:stop:count")
    flags.DEFINE_string("output", None, ".npz file to write, or .csv")
    flags.DEFINE_integer("num_draws", 32, "draws of a latent state, for the standard deviation", lower_bound=2)


if __name__ == "__main__":
    define_flags()
    program.run(main, __doc__ or "")
