"""Frozen description of one run: what it reads, builds and does. JSON values only, saved with every run."""

import dataclasses
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = bool | int | float | str | None | list["Json"] | dict[str, "Json"]


class ConfigError(ValueError):
    """A setting that is unknown, of the wrong type or out of range."""


@dataclasses.dataclass(frozen=True)
class DatasetConfig:
    """Which data, and how much of it."""

    dataset: str = "heat"
    data_seed: int = 0  # draws the initial fields and the split; kept apart from the seed of the run
    num_train: int = 400  # trajectories for training and validation together
    num_validation: int = 20  # of these, held out for choosing the best state
    num_test: int = 100
    data_file: str = ""  # name of the file that is read instead of generating; its folder is not part of the config
    data_options: Mapping[str, Json] = dataclasses.field(default_factory=dict)  # options of the generator


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Which model, with the fields of its module; fields not named keep the module's own defaults."""

    model: str = "ctfno"
    model_fields: Mapping[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """An Optax chain: clip, then the optimizer with its schedule."""

    optimizer: str = "adam"  # adam, adamw, adamax, sgd
    learning_rate: float = 1e-3  # the largest value that the schedule takes
    schedule: str = "one_cycle"  # constant, step, cosine, one_cycle, exponential
    warmup_fraction: float = 0.1  # of all steps, for one_cycle
    final_fraction: float = 1e-3  # last rate over largest, for cosine and one_cycle; the floor for exponential
    decay_factor: float = 0.8  # for step (every decay_steps) and exponential (every step)
    decay_steps: int = 2000
    weight_decay: float = 0.0  # decoupled; adamw only
    clip_norm: float = 1.0  # of the whole gradient; 0 for no clipping
    average_decay: float = 0.0  # exponential moving average of the parameters, used for evaluation; 0 for none


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How long, on what part of the data, and how often to look."""

    steps: int = 4000
    batch_size: int = 20  # trajectories per step, over all devices
    times_per_step: int = 5  # random query times per step; 0 for all of them
    train_grid: int = 256  # points in training: a divisor of the data's, 0 for all; 8 or more in OWN_GRID frames
    train_times: int = 0  # query times in training, a divisor of the data's, for fno_2d only; 0 for all
    loss: str = "mse"  # mse, rmse, relative_l2
    sign_flips: bool = False  # u -> -u with probability 1/2, for equations with that symmetry
    reflections: bool = False  # x -> -x with probability 1/2, for equations with that symmetry
    translations: bool = False  # random shifts of periodic fields; models without coordinates need none
    random_starts: float = 0.0  # probability of a step that starts from a later frame of its trajectories
    random_splits: float = 0.0  # part of the windows of a horizon with steps of random lengths, compared at the end
    window: int = 0  # steps that a model that steps is rolled out over in training; 0 for the whole trajectory
    frame: str = ""  # learn in a frame of each sample's own, or of its equation, see FRAMES
    shared_normalization: bool = False  # one set of statistics for initial states and solutions
    steps_per_call: int = 100  # steps in one compiled call
    eval_every: int = 500  # a multiple of steps_per_call
    keep_checkpoints: int = 2  # latest ones, besides the best


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
    """One cell of a table."""

    experiment: str = "pde"
    preset: str = "default"
    seed: int = 0
    dataset: DatasetConfig = DatasetConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    train: TrainConfig = TrainConfig()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "ExperimentConfig":
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"the config is not valid JSON: {error}") from error
        return from_dict(cls, values)

    @classmethod
    def load(cls, path: str | Path) -> "ExperimentConfig":
        return cls.from_json(Path(path).read_text())


FRAMES = (
    "", "aligned", "comoving", "particles", "aligned_particles", "acoustic", "states", "clocked_states",
    "mirrored", "diffusing",
)  # fmt: skip
STATE_FRAMES = ("states", "clocked_states")  # in units of their own
WALL_FRAMES = ("mirrored", "diffusing")
OWN_GRID = (*STATE_FRAMES, *WALL_FRAMES)  # with train_grid points, whatever the data have
NO_STATES = ("particles", "aligned_particles", "acoustic", "diffusing")  # solutions are no initial states there
SECTIONS = ("dataset", "model", "optimizer", "train")


def from_dict(cls: type, values: Any, where: str = "config") -> Any:
    """A config object from nested dictionaries; an unknown key or a wrong type is an error."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must be a JSON object, got {type(values).__name__}")
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ConfigError(f"{where} has unknown fields {', '.join(unknown)}; known are {', '.join(hints)}")
    kwargs = {}
    for name, value in values.items():
        kind = hints[name]
        nested = isinstance(kind, type) and dataclasses.is_dataclass(kind)
        kwargs[name] = from_dict(kind, value, name) if nested else _typed(name, value, kind)
    return cls(**kwargs)


def _typed(name: str, value: Any, kind: Any) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = typing.get_origin(kind) or kind
    expected = dict if plain is Mapping or not isinstance(plain, type) or issubclass(plain, Mapping) else plain
    if not isinstance(value, expected) or (expected is not bool and isinstance(value, bool)):
        raise ConfigError(f"{name} must be of type {expected.__name__}, got {value!r}")
    return value


def replace_fields(config: ExperimentConfig, overrides: Mapping[str, Any]) -> ExperimentConfig:
    """The config with single fields replaced, whichever section they are in."""
    sections = {name: getattr(config, name) for name in SECTIONS}
    for field, value in overrides.items():
        for name, section in sections.items():
            if field in {f.name for f in dataclasses.fields(section)}:
                kind = typing.get_type_hints(type(section))[field]
                sections[name] = dataclasses.replace(section, **{field: _typed(field, value, kind)})
                break
        else:
            raise ConfigError(f"unknown config field {field}")
    return check(dataclasses.replace(config, **sections))


def check(config: ExperimentConfig) -> ExperimentConfig:
    """The same config, or ConfigError for values that are out of range or contradict each other."""
    data, train, optimizer = config.dataset, config.train, config.optimizer
    at_least = [
        ("num_train", data.num_train, 1), ("num_validation", data.num_validation, 1), ("num_test", data.num_test, 1),
        ("steps", train.steps, 1), ("batch_size", train.batch_size, 1), ("times_per_step", train.times_per_step, 0),
        ("train_grid", train.train_grid, 0), ("steps_per_call", train.steps_per_call, 1), ("window", train.window, 0),
        ("train_times", train.train_times, 0),
        ("eval_every", train.eval_every, 1),
        ("keep_checkpoints", train.keep_checkpoints, 1), ("decay_steps", optimizer.decay_steps, 1),
        ("clip_norm", optimizer.clip_norm, 0), ("weight_decay", optimizer.weight_decay, 0),
    ]  # fmt: skip
    for name, value, least in at_least:
        if not value >= least:  # also refuses NaN
            raise ConfigError(f"{name} must be at least {least}, got {value}")
    if not 0 < optimizer.learning_rate < float("inf"):
        raise ConfigError(f"learning_rate must be positive and finite, got {optimizer.learning_rate}")
    for name in ("average_decay", "warmup_fraction"):
        if not 0 <= getattr(optimizer, name) < 1:
            raise ConfigError(f"{name} must be in [0, 1), got {getattr(optimizer, name)}")
    if not 0 <= optimizer.final_fraction <= 1:
        raise ConfigError(f"final_fraction must be in [0, 1], got {optimizer.final_fraction}")
    if not 0 < optimizer.decay_factor <= 1:
        raise ConfigError(f"decay_factor must be in (0, 1], got {optimizer.decay_factor}")
    _check_starts_and_frame(train)
    if data.num_validation >= data.num_train:
        raise ConfigError(
            f"num_validation={data.num_validation} trajectories are held out of num_train={data.num_train}; "
            "leave some for training"
        )
    if train.batch_size > data.num_train - data.num_validation:
        raise ConfigError(
            f"batch_size={train.batch_size} exceeds the {data.num_train - data.num_validation} training trajectories"
        )
    for name in ("steps", "eval_every"):
        value = getattr(train, name)
        if value % train.steps_per_call:
            raise ConfigError(f"{name}={value} must be a multiple of steps_per_call={train.steps_per_call}")
    return config


def _check_starts_and_frame(train: TrainConfig) -> None:
    """Where trajectories may start, and in which frame."""
    for name in ("random_starts", "random_splits"):
        if not 0 <= getattr(train, name) <= 1:
            raise ConfigError(f"{name} must be in [0, 1], got {getattr(train, name)}")
    if train.frame not in FRAMES:
        raise ConfigError(f"unknown frame {train.frame!r}; known are {', '.join(FRAMES[1:])}, and '' for none")
    if train.frame.startswith("aligned") and (
        train.window or train.random_starts or train.translations or train.sign_flips
    ):
        raise ConfigError(
            f"in the {train.frame} frame the first wave of all initial states starts at the origin: no window, "
            "random_starts, translations or sign_flips"
        )
    if train.frame in NO_STATES and (train.window or train.random_starts or train.shared_normalization):
        raise ConfigError(
            f"in the {train.frame} frame solutions are no initial states: no window, random_starts or shared statistics"
        )
    if train.frame in OWN_GRID and train.train_grid < 8:
        raise ConfigError(
            f"the {train.frame} frame has train_grid points: set it to 8 or more, got train_grid={train.train_grid}"
        )
    own_units = train.frame in STATE_FRAMES
    if own_units and (not train.window or train.shared_normalization):
        raise ConfigError(
            f"the frame of {train.frame} is for models that make steps, in units of its own: set window, and not "
            f"shared_normalization; got window={train.window}, shared_normalization={train.shared_normalization}"
        )
    if (train.random_starts or train.window) and not (train.shared_normalization or own_units):
        raise ConfigError("random_starts and window make initial states of solutions; they need shared_normalization")
    if train.random_starts and not (train.window or train.times_per_step):
        raise ConfigError("random_starts needs times_per_step of at least 1, or a window and a model with a horizon")
