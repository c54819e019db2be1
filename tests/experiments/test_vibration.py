"""Plane vibration: its cells, a tiny run on a small record, what is refused, and the table of its rows."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from helpers import compiled

from ctfno_jax import config as config_lib
from ctfno_jax import predict
from ctfno_jax.certify import observed_lipschitz, singular_values
from ctfno_jax.data import plane_vibration
from ctfno_jax.models import registry as models
from ctfno_jax.models.ctfno import num_parameters
from experiments import common, files, linear_forecast, run_folder, series_run, tables
from experiments import vibration as program
from experiments.configs import vibration as presets

NAME = plane_vibration.NAME
PRESETS = common.PRESETS

# After a failed read, what is left of it reports to an event loop that is closed by then; nobody waits for it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def _config(model="ctfno", preset="default", seed=0, **stability):
    return presets.vibration_config(NAME, model, preset, seed, **stability)


# --- cells --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_ctfno_has_its_published_size(preset):
    """It reads 64 points of five values and their time."""
    model = predict.model_of(_config(preset=preset))
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 64, 6)), jnp.arange(8.0))
    assert num_parameters(shapes["params"]) == 6_310


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("model", presets.MODELS)
def test_every_cell_is_obeyed_and_survives_json(model, preset):
    config = _config(model, preset, 2)
    series_run.check_settings(config)
    config_lib.check(config)
    assert (config.experiment, config.preset, config.seed) == ("vibration", preset, 2)
    assert config.model.model == {"node": "node_rnn", "anode": "anode_rnn"}.get(model, model)
    assert config.model.model_fields["out_features"] == len(plane_vibration.SIGNALS)
    assert config.dataset.data_file == "pv.csv"
    assert type(config).from_json(config.to_json()) == config


def test_the_paper_preset_reads_the_record_as_published():
    assert all(not _config(model, "paper").dataset.data_options for model in presets.MODELS)
    assert _config("sonode", "paper").model.model_fields["ignore_gaps"] is True
    assert "ignore_gaps" not in _config("sonode").model.model_fields
    assert {_config(model).dataset.data_options["train_stride"] for model in presets.MODELS} == {4}


def test_recurrent_models_learn_from_every_observation():
    losses = {model: _config(model).train.loss for model in presets.MODELS}
    assert losses.pop("ctfno") == "mse"
    assert set(losses.values()) == {"with_steps"}


@pytest.mark.parametrize(
    ("stability", "bound", "rule", "variant"),
    [
        ({}, 1.2, "rows", "M1.2_rows"),
        ({"bound": 10.0, "rule": "rows_and_columns"}, 10.0, "rows_and_columns", "M10_rows_and_columns"),
        ({"bound": None}, None, None, "M_none"),
        ({"bound": None, "rule": "rows_and_columns"}, None, None, "M_none"),
    ],
)
def test_cells_of_ctfno_differ_by_bound_and_rule(stability, bound, rule, variant):
    config = _config(**stability)
    assert presets.stability_of(config) == {"stability_bound": bound, "stability_rule": rule}
    assert presets.variant(config) == variant
    operator = predict.model_of(config).operator
    assert (operator.stability_bound, operator.stability_rule) == (bound, rule or "rows")


def test_all_cells_have_rows_and_folders_of_their_own():
    cells = [_config(model) for model in presets.MODELS[1:]] + [_config(bound=None)]
    cells += [_config(bound=bound, rule=rule) for bound in presets.BOUNDS if bound for rule in presets.RULES]
    assert {presets.variant(config) for config in cells[:5]} == {""}
    assert len({run_folder.row_path("results", config, presets.variant(config)) for config in cells}) == len(cells)
    assert len({run_folder.default_workdir(config, presets.variant(config)) for config in cells}) == len(cells)


def test_other_models_have_neither_bound_nor_rule():
    config = presets.vibration_config(NAME, "hbnode", "default", 0)
    assert presets.stability_of(config) == {"stability_bound": None, "stability_rule": None}
    assert not {"stability_bound", "stability_rule"} & set(models.hyper_parameters("hbnode", series=True))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (("sine", "ctfno", "default"), "unknown dataset 'sine'; there is plane_vibration"),
        ((NAME, "neural_flow", "default"), "no cell plane_vibration with neural_flow; models are ctfno, node"),
        ((NAME, "ctfno", "long"), "unknown preset 'long'; known are quick, default, paper"),
    ],
)
def test_unknown_cells_list_the_known_ones(cell, message):
    with pytest.raises(ValueError, match=message):
        presets.vibration_config(*cell, 0)


# --- what a run refuses -------------------------------------------------------------------------------------------


def _changed(config, **changes):
    """Without the rules that all configs have in common."""
    return dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, **changes))


@pytest.mark.parametrize("change", [{"num_train": 100}, {"num_validation": 30}, {"num_test": 5}, {"data_seed": 1}])
def test_settings_of_generated_data_are_refused(change, tmp_path):
    (name,) = change
    message = f"plane_vibration is cut in order as published; remove --{name}"
    with pytest.raises(config_lib.ConfigError, match=message):
        series_run.run([_changed(_config(), **change)], [tmp_path / "run"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", presets.MODELS[1:])
def test_a_clock_that_loses_the_last_observation_is_refused_by_models_that_start_there(model):
    config = _changed(_config(model), data_options={"clock": "segment"})
    with pytest.raises(config_lib.ConfigError, match=r"follows its equation from the last observation.*clock=last"):
        series_run.check_settings(config)
    series_run.check_settings(_changed(_config(model), data_options={"clock": "last"}))
    series_run.check_settings(_changed(_config("ctfno"), data_options={"clock": "segment"}))


def test_a_loss_of_steps_is_for_models_that_have_them():
    config = _config()
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, loss="with_steps"))
    with pytest.raises(config_lib.ConfigError, match="models with a state at each observation; ctfno has none"):
        series_run.check_settings(config)


def test_without_the_record_a_run_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.delenv("CTFNO_DATA_DIR", raising=False)
    with pytest.raises(ValueError, match=r"plane_vibration is read from pv\.csv; name its folder by --data_dir"):
        series_run.run([_small_config()], [tmp_path / "run"])
    assert not (tmp_path / "run" / "config.json").exists()


# --- a run on a small record --------------------------------------------------------------------------------------

OPTIONS = {"train_stride": 20}


def _small_config():
    """Two steps of a network of a few hundred parameters."""
    fields = {
        "out_features": 5, "grid_points": 6, "width": 4, "modes": [3], "depth": 1, "heads": 1, "time_width": 4,
        "time_features": 4, "observation_scale": 1 / 64, "stability_bound": 0.5, "stability_rule": "rows_and_columns",
    }  # fmt: skip
    changes = {
        "model_fields": fields, "data_options": OPTIONS, "steps": 2, "steps_per_call": 2, "eval_every": 2,
        "batch_size": 8,
    }  # fmt: skip
    return config_lib.replace_fields(_config(preset="quick"), changes)


def _write_record(folder: Path) -> None:
    """1200 samples of five signals in the form of the file; they drift, so that its parts differ in their means."""
    n = np.arange(1200.0)
    waves = np.stack([np.sin(0.1 * (i + 1) * n + i) for i in range(5)], axis=1)
    record = waves * [1.0, 20.0, 0.3, 1.0, 5.0] + (n / 300)[:, None] * [1.0, -20.0, 0.3, 2.0, 0.0]
    rows = [",".join(f"{value:.9g}" for value in row) + f",{400 if i == 0 else ''}," for i, row in enumerate(record)]
    header = '"Force","Voltage","Acceleration1","Acceleration2","Acceleration3","Fs",""'
    (folder / "pv.csv").write_text("\n".join([header, *rows]) + "\n")


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("record")
    _write_record(folder)
    return folder


@pytest.fixture(scope="module")
def data(record):
    return plane_vibration.load(record / "pv.csv", **OPTIONS)


@pytest.fixture(scope="module")
def finished(record, tmp_path_factory):
    """Folder and result of a trained run."""
    workdir = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch, compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        patch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
        patch.setattr(files, "write_figure", lambda path, figure: None)  # pictures are looked at elsewhere, and slow
        (result,) = series_run.run([_small_config()], [workdir], data_dir=str(record), more_scores=program.scores)
    return workdir, result


@pytest.fixture(scope="module")
def predictor(finished):
    return predict.load_predictor(finished[0])


def _forecasts(predictor, part):
    return predictor(part.inputs(with_times=True), part.times)


def test_the_squared_errors_are_those_of_the_forecasts_of_the_saved_state(finished, predictor, data):
    scores = finished[1]["metrics"]
    for name, part in (("mse", data.test), ("train_mse", data.train), ("validation_mse", data.validation)):
        values = _forecasts(predictor, part)
        assert values.shape == part.values.shape == (len(part), 8, 5)
        assert scores[name] == pytest.approx(np.mean(np.square(values - part.values, dtype=np.float64)), rel=1e-5)
    assert scores["mse"] == pytest.approx(scores["rmse"] ** 2, rel=1e-6)
    assert scores["validation_mse"] == pytest.approx(scores["validation_rmse"] ** 2, rel=1e-4)


def test_forecasts_are_the_same_after_every_reload(finished, predictor, data):
    again = predict.load_predictor(finished[0])
    assert again.config == _small_config()
    np.testing.assert_array_equal(_forecasts(again, data.test), _forecasts(predictor, data.test))


def test_scores_of_a_loaded_run_are_those_of_its_result(finished, predictor, data):
    again = program.scores(predictor, data)
    assert set(again) <= set(finished[1]["metrics"])
    for name in ("mse", "train_mse", "validation_mse"):
        assert again[name] == pytest.approx(finished[1]["metrics"][name], rel=1e-5)
    assert again["singular_values"] == finished[1]["metrics"]["singular_values"]


def test_the_result_says_what_was_read(finished, data):
    _, result = finished
    stated = [result[name] for name in ("experiment", "dataset", "source", "model", "preset", "steps")]
    assert stated == ["vibration", NAME, "pv.csv", "ctfno", "quick", 2]
    assert result["data"] == {"num_samples": 1200, "train": len(data.train), "validation": 3, "test": 3}
    assert result["paper"]["mse"] == pytest.approx(1.96e-2)
    assert "test MSE" in program.summary(result, Path("run"))


def test_statistics_are_those_of_the_training_part(predictor, data):
    seen = np.concatenate([data.train.observed, data.train.values], axis=1).astype(np.float64)
    outputs, inputs = predictor.normalization.outputs, predictor.normalization.inputs
    np.testing.assert_allclose(outputs.mean, seen.mean((0, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs.std, seen.std((0, 1)), rtol=1e-4)
    # The record drifts: the test part has other means, and so has the whole record, which is in units of its own.
    test = np.concatenate([data.test.observed, data.test.values], axis=1).mean((0, 1))
    assert np.all(np.abs(test - outputs.mean)[:4] > 0.5)
    assert np.all(np.abs(outputs.mean)[:4] > 0.3)
    # What is observed has the same units, and its time stays as it is.
    assert (inputs.mean[:5], inputs.std[:5]) == (outputs.mean, outputs.std)
    assert (inputs.mean[5:], inputs.std[5:]) == ((0.0,), (1.0,))


def test_singular_values_are_means_over_the_query_times_and_below_the_bound(finished, predictor, data):
    kept = finished[1]["metrics"]["singular_values"]
    operator = {"params": predictor.params["params"]["operator"]}
    found = singular_values(predictor.model.operator, operator, data.test.times)
    for name, values in zip(("kernels", "pointwise"), found, strict=True):
        assert len(kept[name]) == values[0].size
        np.testing.assert_allclose(kept[name], np.sort(values.mean(0).ravel())[::-1], rtol=1e-3, atol=1e-6)
        assert max(kept[name]) <= 0.5 * (1 + 1e-3)


def test_growth_is_certified_above_what_is_measured(finished, predictor, data):
    scores = finished[1]["metrics"]
    bound = observed_lipschitz(predictor.model, predictor.params, jnp.asarray(data.test.times)).max()
    assert scores["certified_lipschitz"] == pytest.approx(bound, rel=1e-4)
    assert scores["certified_lipschitz"] >= scores["measured_gain"] > 0


# --- the program --------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch, record):
    """Calls its main with these flags; training is a note of what was asked for."""
    monkeypatch.setenv("CTFNO_DATA_DIR", str(record))

    def call(*arguments):
        values, asked = flags.FlagValues(), []
        with monkeypatch.context() as patch:
            for kind in ("string", "boolean", "integer", "float", "enum", "multi_string"):
                define = getattr(flags, f"DEFINE_{kind}")
                patch.setattr(
                    common.flags, f"DEFINE_{kind}", lambda *a, define=define, **k: define(*a, flag_values=values, **k)
                )
            common.define_training_flags((NAME,), presets.MODELS)
        flags.DEFINE_integer("num_seeds", 1, "", flag_values=values)
        for module in (common, program):
            monkeypatch.setattr(module, "FLAGS", values)
        values(["program", *arguments])

        def train(configs, workdirs, *, more_scores, **settings):
            assert more_scores is program.scores
            asked.extend(zip(configs, workdirs, strict=True))
            metrics = {"mse": 0.02, "validation_rmse": 0.1}
            return [{"seed": c.seed, "preset": c.preset, "metrics": metrics, "paper": None, "num_params": 6310,
                     "train_seconds": 1.0} for c in configs]  # fmt: skip

        monkeypatch.setattr(series_run, "run", train)
        program.main()
        return asked

    return call


def test_seeds_are_trained_together_each_in_its_folder(run, tmp_path):
    rows = f"--results_dir={tmp_path}"
    asked = run("--num_seeds=2", "--seed=3", rows, "--stability_bound=10", "--stability_rule=rows_and_columns")
    assert [config for config, _ in asked] == [_config(seed=s, bound=10.0, rule="rows_and_columns") for s in (3, 4)]
    folder = Path("runs/vibration/plane_vibration/ctfno/M10_rows_and_columns")
    assert [workdir for _, workdir in asked] == [folder / "seed3", folder / "seed4"]
    row = tmp_path / "vibration" / "plane_vibration-ctfno-default-M10_rows_and_columns-seed4.json"
    written = json.loads(row.read_text())
    assert (written["seed"], written["stability_bound"], written["stability_rule"]) == (4, 10.0, "rows_and_columns")


def test_cells_that_have_a_row_are_not_trained_again(run, tmp_path, capsys):
    rows = f"--results_dir={tmp_path}"
    assert [config for config, _ in run(rows, "--stability_bound=none")] == [_config(bound=None)]
    capsys.readouterr()
    asked = run(rows, "--stability_bound=none", "--num_seeds=2")
    assert [config.seed for config, _ in asked] == [1]
    assert "M_none-seed0.json is there already; nothing to do" in capsys.readouterr().out
    assert run(rows, "--stability_bound=none", "--num_seeds=2") == []


def test_a_bound_by_search_is_found_once_for_all_seeds(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = run("--stability_bound=auto", "--num_seeds=2")
    assert len(asked) == 7 + 2
    # With equal errors the smallest M is taken.
    assert [presets.stability_of(config)["stability_bound"] for config, _ in asked[7:]] == [0.3, 0.3]
    assert [config.seed for config, _ in asked[7:]] == [0, 1]


def test_a_missing_record_is_told_before_any_folder_is_made(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"holds no pv\.csv; get it first"):
        run(f"--data_dir={tmp_path}", "--stability_bound=auto")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stability_bound=big"], "--stability_bound must be a number, none or auto, got 'big'"),
        (["--stability_bound=-1"], "stability_bound must be positive"),
        (["--stability_rule=diagonal"], "stability_rule must be one of rows, rows_and_columns"),
        (["--stability_bound=none", "--stability_rule=rows_and_columns"], "needs a stability_bound, got None"),
        (["--model=hbnode", "--stability_bound=1"], "model hbnode has no field stability_bound; remove"),
        (
            ["--model=hbnode", "--stability_bound=auto"],
            "model hbnode has no field stability_bound; remove --stability_bound",
        ),
        (["--num_seeds=2", "--workdir=some"], "--workdir is the folder of one run; leave it out, or --num_seeds"),
        (["--results_dir={}", "--steps=100"], "rows in --results_dir are of presets as they are, but for the bound"),
        (["--results_dir={}", "--stability_bound=auto"], "remove --stability_bound=auto"),
    ],
)
def test_flags_that_contradict_are_refused_before_anything_is_trained(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        run(*(argument.format(tmp_path / "results") for argument in arguments))
    assert not list(tmp_path.iterdir())


# --- the table ----------------------------------------------------------------------------------------------------


def _row(model="ctfno", bound=1.2, rule="rows", seed=0, preset="default", mse=0.0196, **more):
    metrics = {"mse": mse, "train_mse": mse / 2, **more}
    return {"model": model, "stability_bound": bound, "stability_rule": rule, "seed": seed, "preset": preset,
            "metrics": metrics, "num_params": 6310, "train_seconds": 90.0, "cpu_cores": 2}  # fmt: skip


def _write(folder, *rows):
    for i, row in enumerate(rows):
        (folder / f"{i}.json").write_text(json.dumps(row))
    return folder


def _lines(block):
    """Cells of the lines of a printed table, by column."""
    head, *lines = [line.split("  ") for line in block.splitlines()[1:]]
    names = [cell.strip() for cell in head if cell.strip()]
    return [dict(zip(names, [cell.strip() for cell in line if cell.strip()], strict=True)) for line in lines]


def test_the_table_has_every_model_and_every_bound(tmp_path):
    text = tables.vibration_table(_write(tmp_path), "text")
    default, paper = map(_lines, text.split("\n\n"))
    others = [*presets.MODELS[1:], *linear_forecast.MODELS]
    assert [line["model"] for line in default] == ["ctfno", "ctfno", *others]
    assert [line["M"] for line in default] == ["1.2", "none", *["-"] * len(others)]
    bounds = [f"{bound:g}" for bound in presets.BOUNDS if bound]
    assert [(line["M"], line["rule"]) for line in paper] == [
        *[(bound, "rows") for bound in bounds], *[(bound, "rows and columns") for bound in bounds], ("none", "-"),
    ]  # fmt: skip
    assert {line["seeds"] for line in [*default, *paper]} == {"0"}
    assert {line["test MSE"] for line in [*default, *paper]} == {"-"}


def test_a_line_is_the_mean_over_the_seeds_of_its_cell(tmp_path):
    growth = {"certified_lipschitz": 40.0, "measured_gain": 2.0}
    rows = [
        _row(mse=0.01, **growth), _row(seed=1, mse=0.03, certified_lipschitz=60.0, measured_gain=4.0),
        _row(bound=None, rule=None, mse=0.05), _row("hbnode", None, None, mse=0.025), _row("node_rnn", None, None),
        _row("linear", None, None, mse=0.002), _row(preset="paper", bound=10.0, rule="rows_and_columns", mse=0.07),
        _row(preset="quick", mse=9.0),
    ]  # fmt: skip
    default, paper = map(_lines, tables.vibration_table(_write(tmp_path, *rows), "text").split("\n\n"))
    ctfno, unbounded = default[:2]
    assert (ctfno["test MSE"], ctfno["training MSE"], ctfno["paper"]) == ("2.000 ± 1.000", "1.000 ± 0.500", "1.96")
    assert (ctfno["certified"], ctfno["measured"], ctfno["seeds"]) == ("50", "3", "2")
    assert (ctfno["parameters"], ctfno["minutes"], ctfno["cores"]) == ("6,310", "1.5", "2")
    # The paper's number is of its own M, and of no other.
    assert (unbounded["test MSE"], unbounded["paper"], unbounded["certified"]) == ("5.000", "-", "-")
    by_model = {line["model"]: line for line in default[2:]}
    assert (by_model["hbnode"]["test MSE"], by_model["hbnode"]["paper"]) == ("2.500", "2.5")
    assert (by_model["node"]["seeds"], by_model["linear"]["test MSE"]) == ("1", "0.2000")
    (found,) = [line for line in paper if line["seeds"] == "1"]
    assert (found["M"], found["rule"], found["test MSE"]) == ("10", "rows and columns", "7.000")


def test_as_markdown_all_lines_have_as_many_columns(tmp_path):
    text = tables.vibration_table(_write(tmp_path, _row()), "markdown")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    assert "| ctfno | 1.2 | rows | 1.960 | 1.96 | 0.9800 |" in text
