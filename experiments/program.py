"""Parts that all programs share: flags of single settings, help, and errors as one line."""

import contextlib
import functools
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from absl import app, flags

from ctfno_jax import config as config_lib
from ctfno_jax.config import ConfigError
from ctfno_jax.data import problems
from ctfno_jax.models import registry
from ctfno_jax.training import loop, step
from ctfno_jax.training.checkpoint import CheckpointError
from experiments import configs, host

FLAGS = flags.FLAGS

# Mistakes of a user, or of the machine: one line, no traceback. Anything else is a bug and shows one.
USER_ERRORS = (ValueError, OSError, CheckpointError)
# Exit code of a training that diverged; any other mistake has 1.
DIVERGED = 3

# Parameters of a generator that flags of their own set, or that are not for users.
_NO_OPTIONS = ("seed", "with_test", "progress", "refinement")
_HELP = ("-h", "--h", "-help", "--help", "-helpfull", "--helpfull", "-helpshort", "--helpshort")
_CELL = ("dataset", "model", "preset", "seed", "num_seeds")
_RUN = ("workdir", "resume", "evaluate", "results_dir", "data_dir", "data_option", "parallel", "tensorboard")


def run(main: Callable[[], None], summary: str, help_fn: Callable[[], str] | None = None) -> None:
    """Runs a program: help, flags, host settings, and mistakes of the user as one line with exit code 1.

    Args:
      main: the program.
      summary: what it does, the first lines of its help.
      help_fn: further text of the help; by default all flags that the program has defined.
    """
    if any(argument in _HELP for argument in sys.argv[1:]):
        _read_known_flags(sys.argv[1:])
        print(_paragraphs(summary) + "\n\n" + (help_fn or flag_help)())
        sys.exit(0)

    def guarded(_: list[str]) -> None:
        try:
            host.set_up()
            main()
        except USER_ERRORS as error:
            _fail(f"error: {one_line(error)}", 1)
        except loop.TrainingDiverged as error:
            _fail(f"error: {one_line(error)}", DIVERGED)
        except loop.Interrupted as error:
            _fail(one_line(error), 130)
        except KeyboardInterrupt:
            _fail("interrupted", 130)

    app.run(guarded, flags_parser=_parse)


def _parse(argv: Sequence[str]) -> list[str]:
    """Reads the flags; a mistake among them is one line."""
    try:
        left = FLAGS(argv)
    except flags.Error as error:
        _fail(f"error: {one_line(error)}; --help lists the flags", 1)
    if len(left) > 1:
        _fail(f"error: unexpected argument {left[1]!r}; settings are given as --name=value", 1)
    return left


def _read_known_flags(arguments: Sequence[str]) -> None:
    """Reads what can be read: a mistake elsewhere must not keep the help from being shown."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.lstrip("-").partition("=")
        if argument.startswith("-") and name in FLAGS:
            with contextlib.suppress(flags.Error):
                FLAGS[name].parse(value if equals else following)
    FLAGS.mark_as_parsed()


def _fail(message: str, code: int) -> NoReturn:
    sys.stdout.flush()
    if sys.stdout.isatty():
        print()  # the progress line may still be open
    print(message, file=sys.stderr, flush=True)
    sys.exit(code)


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


# --- flags of training programs ---------------------------------------------------------------------------------------


def define_training_flags(datasets: Sequence[str]) -> None:
    """Flags of a training program: the cell, the run, and one for each setting of any of its cells."""
    names = tuple(dict.fromkeys(model for dataset in datasets for model in configs.models(dataset)))
    flags.DEFINE_enum("dataset", datasets[0], list(datasets), "data set")
    flags.DEFINE_enum("model", names[0], names, "model")
    flags.DEFINE_enum("preset", "default", configs.PRESETS, "settings to start from")
    flags.DEFINE_integer("seed", 0, "seed of the run: initial parameters and batches", lower_bound=0)
    flags.DEFINE_integer("num_seeds", 1, "seeds trained at once: seed, seed + 1, ...", lower_bound=1)
    flags.DEFINE_string("data_dir", None, "folder with raw data, for the data sets that need it; or a file of yours")
    flags.DEFINE_alias("input", "data_dir")
    flags.DEFINE_string("results_dir", None, "also leave the result there as a row for tables, and skip rows it has")
    flags.DEFINE_enum("evaluate", "test", ("test", "validation"), "validation: for trials, test data are never made")
    flags.DEFINE_multi_string("data_option", [], "option of the data generator, as name=value; may be repeated")
    define_run_flags()
    define_setting_flags()


def define_run_flags() -> None:
    """Flags of any program that trains."""
    flags.DEFINE_string(
        "workdir", None,
        "folder of the run, with --num_seeds of its folders seed<k>; runs/<experiment>/<dataset>/<model>/seed<k> by "
        "default",
    )  # fmt: skip
    flags.DEFINE_boolean("resume", False, "continue the unfinished run in the workdir")
    flags.DEFINE_enum("parallel", "shard_map", step.WAYS, "how to run on several devices")
    flags.DEFINE_boolean("tensorboard", False, "also write TensorBoard events (needs the tensorboard extra)")


@functools.cache
def all_settings() -> Mapping[str, Any]:
    """Every setting of any cell with its type; one that has several types is parsed by the cell it is given for."""
    types: dict[str, Any] = {}
    for kind in configs.SETTINGS:
        for network in registry.model_names():
            for name, hint in configs.setting_types(network, kind).items():
                types[name] = hint if types.get(name, hint) == hint else str
    for special in ("data_file", "data_options"):
        types.pop(special)
    return types


def define_setting_flags() -> None:
    """One flag for each setting."""
    for name, kind in all_settings().items():
        define = {bool: flags.DEFINE_boolean, int: flags.DEFINE_integer, float: flags.DEFINE_float}
        define.get(kind, flags.DEFINE_string)(name, None, "a setting; see --help")


def overrides_from_flags(network: str, kind: str, *, leave_out: str = "") -> dict[str, Any]:
    """The settings that were given as flags; ConfigError for one that this cell does not have."""
    known = configs.setting_types(network, kind)
    names = [name for name in all_settings() if name != leave_out]
    given = {name: FLAGS[name].value for name in names if FLAGS[name].value is not None}
    for name in given:
        if name not in known:
            raise ConfigError(f"--{name} is no setting of network {network} on {kind}; remove it")
    values = {n: config_lib.parse(n, v, known[n]) if isinstance(v, str) else v for n, v in given.items()}
    options = dict(_parse_option(text) for text in FLAGS.data_option) if "data_option" in FLAGS else {}
    return values | ({"data_options": options} if options else {})


def _parse_option(text: str) -> tuple[str, Any]:
    def refuse(value: str) -> None:
        raise ConfigError(f"--data_option={name} must be finite, got {value}")

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--data_option must be name=value, got {text!r}")
    if name in inspect.signature(problems.load_dataset).parameters:
        raise ConfigError(f"{name} is no option of a generator; flags set the sizes, --data_seed and --data_dir")
    try:
        return name, json.loads(value, parse_constant=refuse)
    except json.JSONDecodeError:
        return name, value


# --- help -------------------------------------------------------------------------------------------------------------


def training_help() -> str:
    """Flags of a training program in groups, with the settings of the chosen cell."""
    dataset, model, preset = _chosen_cell()
    config = configs.cell("", dataset, model, preset)
    groups = {
        "training": {**config.settings, **vars(config.train), **vars(config.optimizer)},
        "data": {k: v for k, v in vars(config.data).items() if isinstance(v, int) and (v or k == "data_seed")},
        f"network {config.network.network}": dict(config.network.network_fields),
    }
    parts = ["The cell:", _list(_CELL), "", "The run:", _list(_RUN), ""]
    parts += [f"Settings of {model} on {dataset}, preset {preset}:"]
    for name, values in groups.items():
        parts += [f"  {name}", _settings("--", values)]
    options = {**_data_options(problems.problem(dataset)), **config.data.data_options}
    parts += [f"  options of {dataset}, as --data_option=name=value", _settings("", options)]
    return "\n".join(parts)


def _data_options(problem: problems.Problem) -> dict[str, Any]:
    """Options of a generator or record with their defaults."""
    function = problem.generate if isinstance(problem, problems.FieldProblem) else problem.load
    assert function is not None
    found = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {p.name: p.default for p in found if p.default is not p.empty and p.name not in _NO_OPTIONS}


def _chosen_cell() -> tuple[str, str, str]:
    """The cell that the flags name; where it does not exist, a model or preset that the data set has."""
    dataset, model, preset = FLAGS.dataset, FLAGS.model, FLAGS.preset
    model = model if model in configs.models(dataset) else configs.models(dataset)[0]
    return dataset, model, preset if preset in configs.presets(dataset, model) else "default"


def flag_help() -> str:
    """All flags that the program has defined."""
    absl_modules = ("absl", "jax", "chex")
    own = [
        flag.name
        for module, found in FLAGS.flags_by_module_dict().items()
        if not module.startswith(absl_modules)
        for flag in found
    ]
    return "Flags:\n" + _list(own)


def _list(names: Sequence[str]) -> str:
    lines = []
    for name in names:
        flag = FLAGS[name]
        # absl puts the choices of an enumeration before its help, and a remark on lists behind it.
        text = re.sub(r"^<[^>]*>: ", "", flag.help).split(";\n")[0]
        if isinstance(flag.parser, flags.EnumParser):
            text += f" ({' | '.join(flag.parser.enum_values)})"
        default = "" if flag.default in (None, [], False) else f" [{flag.default}]"
        lines += textwrap.wrap(f"--{name:<16} {text}{default}", 78, initial_indent="  ", subsequent_indent=" " * 21)
    return "\n".join(lines)


def _paragraphs(summary: str) -> str:
    """A docstring for the terminal: paragraphs of at most 78 columns, without markup; tables as they are."""
    found = textwrap.dedent(summary).strip().replace("``", "").split("\n\n")
    return "\n\n".join(part if "|" in part else textwrap.fill(part, 78, break_on_hyphens=False) for part in found)


def _settings(prefix: str, values: Mapping[str, Any]) -> str:
    text = "  ".join(f"{prefix}{name}={_shown(value)}" for name, value in values.items())
    return textwrap.fill(
        text, 78, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value).lower()
