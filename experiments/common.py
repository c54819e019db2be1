"""Flags shared by the training programs, the config they describe, and errors as one line."""

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from absl import app, flags

from ctfno_jax import config as config_lib
from ctfno_jax import predict
from ctfno_jax.models import registry as models
from ctfno_jax.training import loop, optimizers, sharding
from ctfno_jax.training.checkpoint import CheckpointError
from experiments import host

FLAGS = flags.FLAGS

PRESETS = ("quick", "default", "paper")

# Data set, model, preset and seed to the config of that cell.
PresetConfig = Callable[[str, str, str, int], config_lib.ExperimentConfig]

# Mistakes of a user, or of the machine: one line, no traceback. Anything else is a bug and shows one.
USER_ERRORS = (ValueError, OSError, CheckpointError, loop.TrainingDiverged)

# Config fields that have a flag of another form.
_SPECIAL = ("dataset", "model", "model_fields", "data_options", "data_file")


def run_program(main: Callable[[], None]) -> None:
    """Runs a program: host settings, flags, and errors of the user as one line with exit code 1."""

    def guarded(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"unexpected argument {argv[1]!r}; settings are given as --name=value")
        try:
            host.set_up()
            main()
        except USER_ERRORS as error:
            sys.stdout.flush()
            if sys.stdout.isatty():
                print()  # the progress line may still be open
            print(f"error: {_one_line(error)}", file=sys.stderr, flush=True)
            sys.exit(1)
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr, flush=True)
            sys.exit(130)

    app.run(guarded)


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def define_training_flags(datasets: tuple[str, ...], model_names: tuple[str, ...]) -> None:
    """Flags of a training program, one for each config field and each field of a model; the first names are default."""
    flags.DEFINE_enum("dataset", datasets[0], datasets, "data set")
    flags.DEFINE_enum("model", model_names[0], model_names, "model")
    flags.DEFINE_enum("preset", "default", PRESETS, "settings to start from")
    flags.DEFINE_integer("seed", 0, "seed of the run: initial parameters and batches", lower_bound=0)
    flags.DEFINE_string("workdir", None, "folder of the run; runs/<experiment>/<dataset>/<model>/seed<k> by default")
    flags.DEFINE_string("data_dir", None, "folder with raw data, for the data sets that need it")
    flags.DEFINE_string("results_dir", None, "also leave the result there as a row for tables, and skip cells it has")
    flags.DEFINE_boolean("resume", False, "go on with the unfinished run in the workdir")
    flags.DEFINE_enum("parallel", "shard_map", sharding.WAYS, "how to run on several devices")
    flags.DEFINE_boolean("tensorboard", False, "also write TensorBoard events (needs the tensorboard extra)")
    flags.DEFINE_multi_string("data_option", [], "option of the data generator, as name=value; may be repeated")
    for section in config_lib.SECTIONS:
        cls = typing.get_type_hints(config_lib.ExperimentConfig)[section]
        for field, kind in typing.get_type_hints(cls).items():
            if field not in _SPECIAL:
                _define_override(field, kind, f"override of the preset's {section} setting")
    for field, kind in _model_fields().items():
        _define_override(field, kind, "override of a field of the model")


def _model_fields() -> dict[str, Any]:
    """Fields of all models with their types."""
    every = [
        models.hyper_parameters(name, series=series)
        for series in (False, True)
        for name in models.model_names(series=series)
    ]
    return {field: kind for known in every for field, (kind, _) in known.items()}


def _define_override(name: str, kind: Any, text: str) -> None:
    if kind is bool:
        flags.DEFINE_boolean(name, None, text)
    elif kind is int:
        flags.DEFINE_integer(name, None, text)
    elif kind is float:
        flags.DEFINE_float(name, None, text)
    else:
        flags.DEFINE_string(name, None, text)


def config_from_flags(preset_config: PresetConfig, model: str, data_file: str = "") -> config_lib.ExperimentConfig:
    """The preset's config with all overrides applied; ``data_file`` names the file that the data comes from, if any."""
    config = preset_config(FLAGS.dataset, model, FLAGS.preset, FLAGS.seed)
    overrides: dict[str, Any] = {}
    for section in config_lib.SECTIONS:
        for field in dataclasses.fields(getattr(config, section)):
            if field.name not in _SPECIAL and FLAGS[field.name].value is not None:
                overrides[field.name] = FLAGS[field.name].value
    _refuse_unread(overrides, FLAGS.schedule or config.optimizer.schedule)
    known = models.hyper_parameters(config.model.model, series=predict.is_series(config))
    model_fields = dict(config.model.model_fields)
    for field in _model_fields():
        value = FLAGS[field].value
        if value is None:
            continue
        if field not in known:
            raise config_lib.ConfigError(f"model {config.model.model} has no field {field}; remove --{field}")
        if field == "stability_bound" and bound_is_auto():
            model_fields[field] = 1.0  # some bound, until one is chosen
            continue
        model_fields[field] = _parse(field, value, known[field][0])
    overrides["model_fields"] = model_fields
    overrides["data_file"] = data_file
    # A preset's options are of the generator, which a file takes the place of, unless there is none but the file.
    preset_options = config.dataset.data_options if data_file == config.dataset.data_file else {}
    overrides["data_options"] = {**preset_options, **dict(map(_parse_option, FLAGS.data_option))}
    config = config_lib.replace_fields(config, overrides)
    # Building a module is free and refuses bad fields now, before any data is made.
    predict.model_of(config)
    return config


def bound_is_auto() -> bool:
    """M is to be searched for, see :mod:`experiments.choose_bound`."""
    return (FLAGS.stability_bound or "").lower() == "auto"


def refuse_row_of_auto() -> None:
    """Rows are of presets, not of a search."""
    if FLAGS.results_dir and bound_is_auto():
        raise ValueError("rows in --results_dir are of presets as they are; remove --stability_bound=auto")


def _refuse_unread(overrides: dict[str, Any], schedule: str) -> None:
    """Refuses settings of the learning rate that the chosen schedule would not read."""
    settings = set().union(*optimizers.SCHEDULES.values())
    for name in sorted(settings & set(overrides)):
        if schedule in optimizers.SCHEDULES and name not in optimizers.SCHEDULES[schedule]:
            raise config_lib.ConfigError(f"schedule {schedule} does not read {name}; remove --{name}")


def _parse(name: str, value: Any, kind: Any) -> Any:
    """A flag's text as the type of a model field: tuples by commas, ``none`` where None is allowed."""
    if not isinstance(value, str) or kind is str:
        return value
    options = (
        typing.get_args(kind)
        if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
        else (kind,)
    )
    if type(None) in options and value.lower() == "none":
        return None
    try:
        if any(typing.get_origin(option) is tuple for option in options) and ("," in value or len(options) == 1):
            inner = next(typing.get_args(option)[0] for option in options if typing.get_origin(option) is tuple)
            return [inner(part) for part in value.strip("()[], ").split(",")]
        scalar = next(option for option in options if option in (int, float))
        return scalar(value)
    except ValueError as error:
        raise config_lib.ConfigError(f"--{name} cannot be {value!r}: expected {_type_name(kind)}") from error


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


def _parse_option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise config_lib.ConfigError(f"--data_option must be name=value, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
