"""What the programs share: every flag is parsed or refused, the help, and mistakes as one line."""

import sys

import pytest
from absl import flags as absl_flags
from helpers import program_flags

from ctfno_jax.config import ConfigError
from ctfno_jax.data import problems
from ctfno_jax.models import registry
from ctfno_jax.training import loop
from ctfno_jax.training.checkpoint import CheckpointError
from experiments import cells, configs, host, program

EXPERIMENT = {dataset: name for name, datasets in configs.EXPERIMENTS.items() for dataset in datasets}
CELLS = [(dataset, model) for dataset in configs.DATASETS for model in configs.models(dataset)]
# One cell of every network.
BY_NETWORK = {configs.flat_settings(d, m, "default")["network"]: (d, m) for d, m in CELLS}


class _Asked(Exception):
    """Carries the cells that would be trained."""


def _cell(monkeypatch, *arguments, experiment="pde"):
    """The cell that a training program makes of its flags."""

    def train(todo, *_, **__):
        raise _Asked(todo)

    program_flags.parse(monkeypatch, *arguments, experiment=experiment)
    monkeypatch.setattr(cells, "run_cells", train)
    monkeypatch.setattr(problems, "data_file", lambda *_: None)
    with pytest.raises(_Asked) as caught:
        cells.run_from_flags(experiment)
    ((cell,),) = caught.value.args
    return cell


# --- settings as flags --------------------------------------------------------------------------------------------


def test_there_is_a_cell_of_every_network():
    assert set(BY_NETWORK) == set(registry.model_names())


@pytest.mark.parametrize("network", BY_NETWORK)
def test_every_setting_of_a_cell_can_be_given_as_a_flag(monkeypatch, network):
    """Given with the values that they have, flags change nothing."""
    dataset, model = BY_NETWORK[network]
    config = configs.cell(EXPERIMENT[dataset], dataset, model)
    settings = {**config.settings, **vars(config.train), **vars(config.optimizer), **config.network.network_fields}
    settings["data_seed"] = config.data.data_seed
    if config.data.num_train:
        settings |= {name: getattr(config.data, name) for name in ("num_train", "num_validation", "num_test")}
    # What the schedule does not read may not be given.
    unread = {"decay_factor", "decay_steps"}
    arguments = [f"--{name}={cells._text(value)}" for name, value in settings.items() if name not in unread]
    cell = _cell(monkeypatch, f"--dataset={dataset}", f"--model={model}", *arguments, experiment=EXPERIMENT[dataset])
    assert set(cell.overrides) == set(settings) - unread
    assert cell.config() == config
    known = set(configs.setting_types(network, problems.problem(dataset).kind))
    assert known == set(settings) | {"data_file", "data_options", "num_train", "num_validation", "num_test"}


@pytest.mark.parametrize("network", BY_NETWORK)
def test_every_setting_that_a_cell_does_not_have_is_refused_by_name(monkeypatch, network):
    dataset, model = BY_NETWORK[network]
    kind = problems.problem(dataset).kind
    values = program_flags.parse(
        monkeypatch, f"--dataset={dataset}", f"--model={model}", experiment=EXPERIMENT[dataset]
    )
    foreign = set(program.all_settings()) - set(configs.setting_types(network, kind))
    assert foreign
    for name in foreign:
        values[name].value = 1
        with pytest.raises(ConfigError, match=f"--{name} is no setting of network {network} on {kind}; remove it"):
            program.overrides_from_flags(network, kind)
        values[name].value = None


def test_flags_override_the_preset_in_every_section(monkeypatch):
    arguments = (
        "--preset=quick", "--seed=3", "--learning_rate=0.5", "--nocoordinates", "--stability_bound=2", "--modes=9",
        "--num_train=24", "--steps=200", "--times_per_step=3", "--data_option=num_points=512",
        "--data_option=viscosity=1e-2",
    )  # fmt: skip
    config = _cell(monkeypatch, *arguments).config()
    assert (config.preset, config.seed, config.data.num_train, config.train.steps) == ("quick", 3, 24, 200)
    assert (config.optimizer.learning_rate, config.settings["times_per_step"]) == (0.5, 3)
    fields = config.network.network_fields
    assert (fields["modes"], fields["coordinates"], fields["stability_bound"]) == ([9], False, 2.0)
    assert config.data.data_options == {"num_points": 512, "viscosity": 0.01}


def test_options_of_a_preset_stay_unless_they_are_named(monkeypatch):
    quick = configs.flat_settings("burgers", "ctfno", "quick")["data_options"]
    arguments = ("--dataset=burgers", "--preset=quick", "--data_option=viscosity=0.1")
    assert _cell(monkeypatch, *arguments).overrides == {"data_options": {**quick, "viscosity": 0.1}}


def test_without_flags_a_cell_is_its_preset(monkeypatch):
    assert _cell(monkeypatch, "--preset=paper", "--dataset=burgers") == cells.Cell("pde", "burgers", "ctfno", "paper")


def test_none_takes_a_bound_off_again(monkeypatch):
    config = _cell(monkeypatch, "--preset=paper", "--stability_bound=none").config()
    assert config.network.network_fields["stability_bound"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stability_bound=big"], "--stability_bound cannot be 'big': it must be a number, or none"),
        (["--modes=a,b"], "--modes cannot be 'a,b': it must be whole numbers separated by commas"),
        (["--time_chunk=few"], "--time_chunk cannot be 'few': it must be a whole number, or none"),
        (["--learning_rate=nan"], "learning_rate must be finite, got nan"),
        (["--time_scale=inf"], "time_scale must be finite, got inf"),
        (["--data_option=viscosity"], "--data_option must be name=value, got 'viscosity'"),
        (["--data_option=viscosity=NaN"], "--data_option=viscosity must be finite, got NaN"),
        (["--data_option=seed=3"], "seed is no option of a generator; flags set the sizes, --data_seed and --data_dir"),
        (["--steps=150"], "steps=150 must be a multiple of steps_per_call=100"),
        (["--num_validation=0"], "num_validation must be at least 1, got 0"),
        (["--optimizer=lion"], "unknown optimizer 'lion'; known are adam, adamw, adamax, sgd"),
        (["--schedule=linear"], "unknown schedule 'linear'; known are constant"),
        (["--weight_decay=0.1"], r"weight_decay=0\.1 needs optimizer adamw, got adam"),
        (["--decay_steps=7"], "schedule one_cycle does not read decay_steps; remove --decay_steps"),
        (["--schedule=constant", "--final_fraction=0.5"], "schedule constant does not read final_fraction; remove"),
        (["--random_starts=0.5"], "random_starts and window use solutions as initial states"),
        (["--loss=elbo"], "unknown loss 'elbo'; known are mse, rmse, relative_l2"),
        (
            ["--dataset=burgers", "--model=ctfno_odd"],
            "there is no cell burgers with ctfno_odd; models are ctfno, ctfno_",
        ),
        (
            ["--model=ctfno_semigroup", "--preset=paper"],
            "the paper has no ctfno_semigroup on heat; preset=paper has ctf",
        ),
        (["--results_dir=some", "--evaluate=validation"], "rows in --results_dir hold test errors; remove --evaluate"),
        (
            ["--results_dir=some", "--stability_bound=auto"],
            "rows in --results_dir name their bound; give --stability_b",
        ),
        (["--model=deeponet", "--stability_bound=auto"], "network deeponet has no stability_bound; remove --stability"),
    ],
)
def test_values_that_cannot_be_obeyed_are_refused_and_nothing_is_written(monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        _cell(monkeypatch, *arguments).config()
    assert "\n" not in program.one_line(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argument", ["--num_train=100", "--num_validation=30", "--num_test=5"])
def test_sizes_are_no_settings_of_a_record(monkeypatch, argument):
    name = argument.removeprefix("--").partition("=")[0]
    with pytest.raises(ConfigError, match=f"plane_vibration is a record that its options divide; remove {name}"):
        _cell(monkeypatch, argument, experiment="vibration").config()


# --- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", configs.EXPERIMENTS)
def test_the_help_lists_all_settings_of_the_chosen_cell_in_80_columns(monkeypatch, experiment):
    values = program_flags.define(monkeypatch, experiment)
    for dataset in configs.EXPERIMENTS[experiment]:
        for model in configs.models(dataset):
            for preset in configs.presets(dataset, model):
                values["dataset"].value, values["model"].value, values["preset"].value = dataset, model, preset
                values.mark_as_parsed()
                text = program.training_help()
                assert max(map(len, text.splitlines())) < 80
                config = configs.cell(experiment, dataset, model, preset)
                shown = {**config.settings, **vars(config.train), **vars(config.optimizer)}
                shown |= config.network.network_fields
                words = text.split()
                assert {f"--{name}={program._shown(value)}" for name, value in shown.items()} <= set(words)
                assert {f"--{name}" for name in (*program._CELL, *program._RUN)} <= set(words)


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a program with these arguments; returns its exit code and what it printed."""
    monkeypatch.setattr(host, "set_up", lambda: None)
    absl_flags.FLAGS.mark_as_parsed()

    def call(*arguments, main=lambda: None, experiment="pde"):
        program_flags.define(monkeypatch, experiment)
        monkeypatch.setattr(sys, "argv", ["program", *arguments])
        with pytest.raises(SystemExit) as caught:
            program.run(main, "Trains a thing: ``python -m thing``.\n\nMore.\n", program.training_help)
        return caught.value.code, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",), ("-h",), ("--helpfull",), ("--help", "--dataset=heet"), ("--wdith=3", "--help"),
        ("extra", "--steps=many", "--help"), ("--help", "--seed=-1", "--model"),
    ],
)  # fmt: skip
def test_the_help_is_shown_whatever_else_is_wrong(run, arguments):
    code, text, errors = run(*arguments, main=lambda: pytest.fail("the program ran"))
    assert (code, errors) == (0, "")
    assert text.startswith("Trains a thing: python -m thing.\n\nMore.\n\nThe cell:\n")
    assert "Settings of ctfno on heat, preset default:" in text


@pytest.mark.parametrize(
    "form", [("--dataset=burgers", "--model=fno_2d"), ("--dataset", "burgers", "--model", "fno_2d")]
)
def test_the_help_is_that_of_the_chosen_cell(run, form):
    assert "Settings of fno_2d on burgers, preset quick:" in run(*form, "--preset=quick", "--help")[1]


def test_the_help_of_a_cell_that_does_not_exist_is_that_of_another(run):
    text = run("--help", "--dataset=burgers", "--model=ctfno_odd", "--preset=paper")[1]
    assert "Settings of ctfno on burgers, preset paper:" in text
    assert (
        "Settings of ctfno_semigroup on heat, preset default:"
        in run("--help", "--model=ctfno_semigroup", "--preset=paper")[1]
    )


# --- mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--dataset=heet", ("--dataset=heet", "heat|burgers|diffusion_sorption|navier_stokes|reaction")),
        ("--model=ctfn", ("--model=ctfn", "ctfno|", "|deeponet|")),
        ("--preset=fast", ("--preset=fast", "quick|default|paper")),
        ("--parallel=xmap", ("--parallel=xmap", "shard_map|pmap")),
        ("--wdith=3", ("Unknown command line flag 'wdith'", "width")),
        ("--steps=many", ("--steps=many", "invalid literal for int()")),
        ("--seed=-1", ("--seed=-1",)),
        ("--num_seeds=0", ("--num_seeds=0",)),
        ("heat", ("unexpected argument 'heat'; settings are given as --name=value",)),
    ],
)
def test_a_mistake_in_the_flags_is_one_line(run, argument, words):
    code, text, errors = run(argument, main=lambda: pytest.fail("the program ran"))
    assert (code, text) == (1, "")
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    assert all(word in line for word in words)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("a\n  b"), 1, "error: a b"),
        (PermissionError(13, "Permission denied", "/some/file"), 1, "error: /some/file: Permission denied"),
        (CheckpointError(""), 1, "error: CheckpointError"),
        (loop.TrainingDiverged("the loss became nan"), program.DIVERGED, "error: the loss became nan"),
        (loop.Interrupted("stopped at step 4"), 130, "stopped at step 4"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_mistake_of_the_user_or_the_machine_is_one_line(run, error, code, line):
    def main():
        print("working")
        raise error

    assert run(main=main) == (code, "working\n", line + "\n")


def test_a_bug_shows_where_it_is(monkeypatch):
    monkeypatch.setattr(host, "set_up", lambda: None)
    absl_flags.FLAGS.mark_as_parsed()
    program_flags.define(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["program"])
    with pytest.raises(ZeroDivisionError):
        program.run(lambda: 1 / 0, "")
