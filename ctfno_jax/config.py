"""Frozen description of one run: what it reads, builds and does. JSON values only, saved with every run.

Nothing here knows a model, a task or a data set by name. The settings of a network and of a task are plain mappings,
checked by the classes that read them.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

Json = bool | int | float | str | None | list["Json"] | dict[str, "Json"]


class ConfigError(ValueError):
    """A setting that is unknown, of the wrong type or out of range."""


def at_least(config: Any, **least: float) -> None:
    """Raises ConfigError for a field that is below its least value, or NaN."""
    for name, value in least.items():
        if not getattr(config, name) >= value:
            raise ConfigError(f"{name} must be at least {value:g}, got {getattr(config, name)}")


def fraction(config: Any, *names: str, with_one: bool = True) -> None:
    """Raises ConfigError for a field outside of [0, 1], or of [0, 1) if ``with_one`` is false."""
    for name in names:
        value = getattr(config, name)
        if not (0 <= value <= 1) or (value == 1 and not with_one):
            raise ConfigError(f"{name} must be in [0, 1{']' if with_one else ')'}, got {value}")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Samples of a data set."""

    data_seed: int = 1  # draws the samples and the split; 0 is for trials, rows come from 1
    num_train: int = 0  # training samples; 0 for data sets whose split is fixed by their own options
    num_validation: int = 0  # samples that choose the best state
    num_test: int = 0  # samples that only the final evaluation reads
    data_file: str = ""  # name of the file that is read; empty for generated data
    data_options: Mapping[str, Json] = dataclasses.field(default_factory=dict)  # options of the generator or reader

    def __post_init__(self) -> None:
        at_least(self, data_seed=0, num_train=0, num_validation=0, num_test=0)


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """A network: its name in the model registry and all hyper-parameters."""

    network: str = ""
    network_fields: Mapping[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """An Optax chain: clipping, then the optimizer with its schedule."""

    optimizer: str = "adam"  # adam, adamw, adamax, sgd
    learning_rate: float = 1e-3  # largest value of the schedule
    schedule: str = "one_cycle"  # constant, step, cosine, one_cycle, exponential
    warmup_fraction: float = 0.1  # of all steps, for one_cycle
    final_fraction: float = 1e-3  # last rate over largest, for cosine and one_cycle; the floor for step and exponential
    decay_factor: float = 0.8  # for step (every decay_steps) and exponential (every step)
    decay_steps: int = 2000
    weight_decay: float = 0.0  # decoupled; adamw only
    clip_norm: float = 1.0  # of the whole gradient; 0 for no clipping
    average_decay: float = 0.0  # exponential moving average of the parameters, used for evaluation; 0 for none

    def __post_init__(self) -> None:
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ConfigError(f"learning_rate must be positive and finite, got {self.learning_rate}")
        at_least(self, decay_steps=1, clip_norm=0, weight_decay=0)
        fraction(self, "average_decay", "warmup_fraction", with_one=False)
        fraction(self, "final_fraction", "decay_factor")
        if self.decay_factor == 0:
            raise ConfigError("decay_factor must be positive, got 0")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Number of steps and frequency of evaluation."""

    steps: int = 2000
    steps_per_call: int = 100  # steps in one compiled call
    eval_every: int = 500  # a multiple of steps_per_call
    keep_checkpoints: int = 2  # latest ones, besides the best

    def __post_init__(self) -> None:
        at_least(self, steps=1, steps_per_call=1, eval_every=1, keep_checkpoints=1)
        for name in ("steps", "eval_every"):
            value = getattr(self, name)
            if value % self.steps_per_call:
                raise ConfigError(f"{name}={value} must be a multiple of steps_per_call={self.steps_per_call}")


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
    """One cell of a table."""

    experiment: str  # the table it belongs to
    dataset: str  # the problem's name
    model: str  # its name in the table; the network has one of its own
    preset: str
    seed: int  # of the run: initial parameters and batches
    task: str  # what is learned: fields, series
    data: DataConfig
    network: NetworkConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    settings: Mapping[str, Json]  # all settings of the task

    def to_dict(self) -> dict[str, Any]:
        """The config as JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


def from_dict(cls: type, values: Any, where: str = "config") -> Any:
    """A config object from nested dictionaries; an unknown key or a wrong type is an error."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} must be a JSON object, got {type(values).__name__}")
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ConfigError(f"{where} has unknown fields {', '.join(unknown)}; known are {', '.join(hints)}")
    required = {f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING}
    missing = sorted(required - set(values))
    if missing:
        raise ConfigError(f"{where} lacks the fields {', '.join(missing)}")
    kwargs = {}
    for name, value in values.items():
        kind = hints[name]
        nested = isinstance(kind, type) and dataclasses.is_dataclass(kind)
        kwargs[name] = from_dict(kind, value, name) if nested else typed(name, value, kind)
    return cls(**kwargs)


def typed(name: str, value: Any, kind: Any) -> Any:
    """The value as JSON has it: whole numbers as floats where floats are expected, tuples as lists.

    Raises:
      ConfigError: if the value is of another type, or a number that is not finite.
    """
    options = _options(kind)
    if isinstance(value, int) and not isinstance(value, bool) and float in options and int not in options:
        value = float(value)
    if isinstance(value, float) and float in options and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, got {value}")
    if not any(_is(value, option) for option in options):
        raise ConfigError(f"{name} must be {type_name(kind)}, got {value!r}")
    return list(value) if isinstance(value, tuple) else value


def parse(name: str, text: str, kind: Any) -> Any:
    """A flag's text as a value of some type: lists by commas, ``none`` where None is allowed."""
    options = _options(kind)
    if str in options:
        return text
    if type(None) in options and text.lower() == "none":
        return None
    sequence = next((option for option in options if typing.get_origin(option) is tuple), None)
    try:
        if bool in options:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        if sequence is not None and ("," in text or len(options) == 1):
            element = typing.get_args(sequence)[0]
            return [element(part) for part in text.strip("()[], ").split(",")]
        return next(option for option in options if option in (int, float))(text)
    except (ValueError, KeyError, StopIteration) as error:
        raise ConfigError(f"--{name} cannot be {text!r}: it must be {type_name(kind)}") from error


def type_name(kind: Any) -> str:
    """Name of a type for messages."""
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "none"}
    names = []
    for option in _options(kind):
        if typing.get_origin(option) is tuple:
            whole = typing.get_args(option)[0] is int
            names.append("whole numbers separated by commas" if whole else "numbers separated by commas")
        else:
            names.append(plain.get(option, "a JSON object"))
    return ", or ".join(names)


def _options(kind: Any) -> tuple[Any, ...]:
    """The members of a union; any other type alone."""
    union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    return typing.get_args(kind) if union else (kind,)


def _is(value: Any, kind: Any) -> bool:
    plain = typing.get_origin(kind) or kind
    if plain is tuple:
        element = (int, float) if typing.get_args(kind)[0] is float else int
        return isinstance(value, list | tuple) and all(
            isinstance(v, element) and not isinstance(v, bool) and math.isfinite(v) for v in value
        )
    # A bool is an int for Python.
    return isinstance(value, plain) and (plain is bool or not isinstance(value, bool))
