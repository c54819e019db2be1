"""Plane vibration: a tiny run on a small record, its numbers, and what is refused."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import compiled, prediction, program_flags

from ctfno_jax import files, load_predictor
from ctfno_jax.certify import observed_lipschitz, singular_values
from ctfno_jax.data.readers import plane_vibration
from experiments import cells, rows

TINY = (
    "--preset=quick", "--grid_points=6", "--width=4", "--modes=3", "--depth=1", "--time_width=4", "--time_features=4",
    "--stability_bound=0.5", "--stability_rule=rows_and_columns", "--steps=2", "--steps_per_call=2", "--eval_every=2",
    "--batch_size=8", "--data_option=train_stride=20", "--data_option=interpolated=false",
    "--optimizer=sgd", "--clip_norm=0", "--average_decay=0",  # the quickest to compile
)  # fmt: skip


def _write_record(folder):
    """1200 samples of five signals in the form of the file; they drift, so that its parts differ in their means."""
    n = np.arange(1200.0)
    waves = np.stack([np.sin(0.1 * (i + 1) * n + i) for i in range(5)], axis=1)
    record = waves * [1.0, 20.0, 0.3, 1.0, 5.0] + (n / 300)[:, None] * [1.0, -20.0, 0.3, 2.0, 0.0]
    lines = [",".join(f"{value:.9g}" for value in row) + f",{400 if i == 0 else ''}," for i, row in enumerate(record)]
    header = '"Force","Voltage","Acceleration1","Acceleration2","Acceleration3","Fs",""'
    (folder / "pv.csv").write_text("\n".join([header, *lines]) + "\n")


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("record")
    _write_record(folder)
    return folder


@pytest.fixture(scope="module")
def data(record):
    return plane_vibration.load(record / "pv.csv", train_stride=20)


@pytest.fixture(scope="module")
def finished(record, tmp_path_factory):
    """Folder of a trained run, made by the program from a folder with the record."""
    workdir = tmp_path_factory.mktemp("runs") / "run"
    with (
        prediction.one_device(),
        compiled.kept_in(tmp_path_factory.mktemp("compiled")),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(files, "write_figure", lambda path, figure: None)  # pictures are looked at elsewhere, and slow
        program_flags.parse(
            patch, *TINY, f"--workdir={workdir}", f"--data_dir={record}", f"--results_dir={workdir.parent / 'rows'}",
            experiment="vibration",
        )  # fmt: skip
        cells.run_from_flags("vibration")
    return workdir


@pytest.fixture(scope="module")
def result(finished):
    return json.loads((finished / "result.json").read_text())


@pytest.fixture(scope="module")
def predictor(finished):
    return load_predictor(finished)


def _forecasts(predictor, part):
    return predictor(part.inputs(with_times=True), part.times)


@pytest.mark.slow
def test_the_squared_errors_are_those_of_the_forecasts_of_the_saved_state(result, predictor, data):
    scores = result["metrics"]
    for name, part in (("mse", data.test), ("train_mse", data.train), ("validation_mse", data.validation)):
        values = _forecasts(predictor, part)
        assert values.shape == part.values.shape == (len(part), 8, 5)
        assert scores[name] == pytest.approx(np.mean(np.square(values - part.values, dtype=np.float64)), rel=1e-5)


@pytest.mark.slow
def test_a_record_is_filed_as_a_row_with_its_source(finished, result, data):
    cell = cells.Cell.from_command(result["command"])
    assert rows.read(cell.row_path(finished.parent / "rows")) == result
    assert result["config"] == {**cell.config().to_dict(), "evaluate": "test"}
    stated = [result[name] for name in ("experiment", "dataset", "source", "model", "preset", "steps")]
    assert stated == ["vibration", "plane_vibration", "pv.csv", "ctfno", "quick", 2]
    assert (result["data"]["train"], result["data"]["num_samples"]) == (len(data.train), 1200)
    assert result["paper"]["mse"] == pytest.approx(1.96e-2)


@pytest.mark.slow
def test_statistics_are_those_of_the_training_part(predictor, data):
    seen = np.concatenate([data.train.observed, data.train.values], axis=1).astype(np.float64)
    outputs, inputs = predictor.transform.outputs, predictor.transform.inputs
    np.testing.assert_allclose(outputs.mean, seen.mean((0, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs.std, seen.std((0, 1)), rtol=1e-4)
    # The record drifts: the test part has other means, and so has the whole record, which is in units of its own.
    test = np.concatenate([data.test.observed, data.test.values], axis=1).mean((0, 1))
    assert np.all(np.abs(test - outputs.mean)[:4] > 0.5)
    # What is observed has the same units, and its time stays as it is.
    assert (inputs.mean[:5], inputs.std[:5]) == (outputs.mean, outputs.std)
    assert (inputs.mean[5:], inputs.std[5:]) == ((0.0,), (1.0,))


@pytest.mark.slow
def test_singular_values_are_means_over_the_query_times_and_below_the_bound(result, predictor, data):
    kept = result["metrics"]["singular_values"]
    operator = {"params": predictor.params["params"]["operator"]}
    found = singular_values(predictor.model.operator, operator, data.test.times)
    for name, values in zip(("kernels", "pointwise"), found, strict=True):
        assert len(kept[name]) == values[0].size
        np.testing.assert_allclose(kept[name], np.sort(values.mean(0).ravel())[::-1], rtol=1e-3, atol=1e-6)
        assert max(kept[name]) <= 0.5 * (1 + 1e-3)


def test_growth_is_certified_above_what_is_measured(result, predictor, data):
    scores = result["metrics"]
    bound = observed_lipschitz(predictor.model, predictor.params, jnp.asarray(data.test.times)).max()
    assert scores["certified_lipschitz"] == pytest.approx(bound, rel=1e-4)
    assert scores["certified_lipschitz"] >= scores["measured_gain"] > 0


def test_a_missing_record_is_told_before_any_folder_is_made(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        ([f"--data_dir={tmp_path}"], r"holds no pv\.csv; get it first"),
        ([], r"plane_vibration is read from pv\.csv; name its folder by --data_dir"),
        ([f"--data_dir={tmp_path}", "--stability_bound=auto"], r"holds no pv\.csv; get it first"),
    ):
        program_flags.parse(monkeypatch, *arguments, experiment="vibration")
        with pytest.raises(ValueError, match=message):
            cells.run_from_flags("vibration")
    assert list(tmp_path.iterdir()) == []


def test_a_rule_without_a_bound_is_refused(monkeypatch, record, tmp_path):
    program_flags.parse(
        monkeypatch, "--stability_bound=none", "--stability_rule=rows_and_columns", f"--data_dir={record}",
        f"--workdir={tmp_path / 'run'}", experiment="vibration",
    )  # fmt: skip
    with pytest.raises(ValueError, match="needs a stability_bound, got None"):
        cells.run_from_flags("vibration")
    assert list(tmp_path.iterdir()) == []
