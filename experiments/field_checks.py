"""What a run refuses: settings that contradict each other, before data are made, and those that do not fit the data."""

from typing import Any

import numpy as np

from ctfno_jax import predict
from ctfno_jax.config import NO_STATES, WALL_FRAMES, ConfigError, ExperimentConfig
from ctfno_jax.data import equations, frames
from ctfno_jax.training import objectives, optimizers


def check_settings(config: ExperimentConfig, model: Any) -> None:
    """Raises for what follows from the config alone: data may take half an hour to generate."""
    equation = equations.EQUATIONS[config.dataset.dataset]
    _check_symmetries(config, equation)
    predict.frame_of(config)
    optimizers.optimizer(config.optimizer, config.train.steps)
    objectives.objective(config.train.loss)
    name, train = config.model.model, config.train
    if train.frame in ("acoustic", "states") and not _answers_any_time(model):
        raise ConfigError(
            f"in the {train.frame} frame every flow has times of its own, which {name} cannot answer; use "
            f"frame={'clocked_states' if train.frame == 'states' else 'particles'}"
        )
    _check_steps(config, model)
    if train.train_times and not hasattr(model, "resampled"):
        raise ConfigError(f"train_times is for fno_2d; {name} reads single times, see times_per_step")
    _check_range(config, model, equation)
    if not (equation.periodic or train.frame or getattr(model, "coordinates", True)):
        raise ConfigError(
            f"{config.dataset.dataset} has ends, and without coordinates {name} cannot tell them from other places; "
            "set coordinates, or a frame"
        )


def _check_range(config: ExperimentConfig, model: Any, equation: equations.Equation) -> None:
    """A range can only be kept where the equation does, and states and solutions are in the same units."""
    train = config.train
    if not getattr(model, "keeps_range", False):
        return
    if not equation.keeps_range:
        raise ConfigError(
            f"solutions of {config.dataset.dataset} leave the range of their initial state: no keeps_range"
        )
    if not train.shared_normalization or train.frame:
        raise ConfigError(
            "keeps_range compares solutions with states: set shared_normalization, and no frame; got "
            f"shared_normalization={train.shared_normalization}, frame={train.frame or 'none'}"
        )


def _check_steps(config: ExperimentConfig, model: Any) -> None:
    """Windows are for models that step through time; one with a horizon needs them, and chooses where they start."""
    name, train = config.model.model, config.train
    horizon = getattr(model, "horizon", None)
    if train.window and horizon is None and (not hasattr(model, "rollout") or hasattr(model, "horizon")):
        raise ConfigError(f"window={train.window} is for models that step through time; {name} does not")
    if horizon is not None and (not train.window or train.times_per_step):
        raise ConfigError(
            f"horizon={horizon:g} is trained by single steps: set window to their number, and times_per_step=0"
        )
    if train.window and train.random_starts and horizon is None:
        raise ConfigError(f"a window of {name} starts from any frame anyway; remove random_starts")
    if train.random_splits and (horizon is None or train.window < 2):
        raise ConfigError(
            f"random_splits={train.random_splits:g} cuts the steps of a horizon: it needs one, and window of 2 or more"
        )
    _check_start(config, model)


def _check_start(config: ExperimentConfig, model: Any) -> None:
    """What a solution starts from must be in the state that the model sees."""
    start, frame = getattr(model, "start", "free"), config.train.frame
    if (start == "sound") != (frame == "states"):
        raise ConfigError(
            f"start=sound and frame=states go together, got start={start} and frame={frame or 'none'}; "
            "for answers at once, see --model=ctfno_at_once"
        )
    if start == "sound" and model.viscosity_unit != frames.VISCOSITY_UNIT:
        raise ConfigError(
            f"the frame of states has viscosity in units of {frames.VISCOSITY_UNIT}, but viscosity_unit="
            f"{model.viscosity_unit}"
        )
    if start == "state" and frame in NO_STATES:
        raise ConfigError(f"in the {frame} frame solutions are no states: start=state has no meaning")


def check_fit(
    config: ExperimentConfig, model: Any, data_times: np.ndarray, seen_times: np.ndarray, channels: int
) -> None:
    """Raises for what does not fit the fields and times of the data, or these as the model sees them."""
    if model.out_channels != channels:
        raise ConfigError(f"the data have {channels} channels, but out_channels={model.out_channels}")
    _check_counts(config, len(data_times))
    _check_times(model, seen_times)
    _check_window(config, model, data_times)
    _check_horizon(model, seen_times)


def _check_horizon(model: Any, times: np.ndarray) -> None:
    """A step is trained from one frame of the data to another: most must be less than a horizon apart."""
    horizon = getattr(model, "horizon", None)
    if horizon is None:
        return
    too_far = float(np.mean(np.atleast_1d(times[..., 0]) > 1.001 * horizon))
    if too_far > 0.05:
        raise ConfigError(
            f"horizon={horizon:g} is shorter than the time between frames, {np.median(times[..., 0]):g}, for "
            f"{too_far:.0%} of the trajectories: use a longer one, or data at more times"
        )


def _check_symmetries(config: ExperimentConfig, equation: equations.Equation) -> None:
    if config.train.frame in WALL_FRAMES and equation.walls is None:
        raise ConfigError(f"{config.dataset.dataset} has no walls for frame={config.train.frame}; remove it")
    fits_frame = {"aligned": equation.periodic} | dict.fromkeys(WALL_FRAMES, True)
    has = {
        "sign_flips": equation.odd,
        "reflections": equation.reflection is not None,
        "translations": equation.periodic,
        "frame": fits_frame.get(config.train.frame, equation.galilean),
    }
    for name, there in has.items():
        if getattr(config.train, name) and not there:
            which = f"{name}={config.train.frame}" if name == "frame" else name
            raise ConfigError(f"{config.dataset.dataset} does not have the symmetry of {which}; remove it")


def _answers_any_time(model: Any) -> bool:
    """Models on a grid of times say so; those that take a basis from the data need times that all samples share."""
    some = np.asarray([0.0123, 0.0456, 0.0789])
    return predict.unanswerable(model, some) is None and not hasattr(model, "initialize_from_data")


def _check_counts(config: ExperimentConfig, num_times: int) -> None:
    for name in ("times_per_step", "window"):
        if getattr(config.train, name) > num_times:
            raise ConfigError(
                f"{name}={getattr(config.train, name)} exceeds the {num_times} times of the data; use 0 for all of them"
            )


def _check_times(model: Any, times: np.ndarray) -> None:
    problem = predict.unanswerable(model, times)
    if problem is not None:
        raise ConfigError(f"the model does not fit the times of the data: {problem}")


def _check_window(config: ExperimentConfig, model: Any, times: np.ndarray) -> None:
    """A window takes the frames of the data as steps of the model, one for one."""
    if not config.train.window:
        return
    if getattr(model, "horizon", None) is not None:
        if not np.allclose(times, times[0] * np.arange(1, len(times) + 1), rtol=1e-3):
            raise ConfigError("a horizon needs data at multiples of one time, but the times of the data are not")
        return
    if not np.allclose(times, model.time_step * np.arange(1, len(times) + 1), rtol=1e-3):
        raise ConfigError(
            f"the model does not fit the times of the data: with a window, time_step={model.time_step:g} must be the "
            f"{times[0]:g} between two frames"
        )
