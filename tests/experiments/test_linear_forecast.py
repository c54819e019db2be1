"""Linear regression finds a linear law exactly, and leaves a row like any other."""

import numpy as np
import pytest

from ctfno_jax.data import series
from experiments import linear_forecast, rows
from experiments.cells import Cell


def _series(rng, count, law, noise=0.0):
    """Values that are a linear function of six observed numbers, plus a constant."""
    observed = rng.standard_normal((count, 3, 2)).astype(np.float32)
    values = (observed.reshape(count, -1) @ law + 0.7).reshape(count, 4, 2)
    values = values + noise * rng.standard_normal(values.shape)
    return series.Series(np.arange(-2.0, 1.0), observed, np.arange(1.0, 5.0), values.astype(np.float32))


@pytest.fixture
def law():
    return np.random.default_rng(0).standard_normal((6, 8))


def _dataset(law, noise=0.0, num_train=40):
    rng = np.random.default_rng(1)
    parts = [_series(rng, count, law, noise) for count in (num_train, 11, 9)]
    return series.SeriesDataset("plane_vibration", *parts, {"num_train": float(num_train)}, source="pv.csv")


def test_a_linear_law_is_found(law):
    weights, ridge = linear_forecast.fit(_dataset(law))
    assert ridge == min(linear_forecast.RIDGES)
    np.testing.assert_allclose(weights[:-1], law, atol=1e-4)
    np.testing.assert_allclose(weights[-1], 0.7, atol=1e-4)


def test_the_ridge_is_chosen_on_the_validation_part(law):
    """Fewer series than features and much noise: the least ridge is not the best."""
    data = _dataset(law, noise=3.0, num_train=7)
    weights, ridge = linear_forecast.fit(data)
    errors = []
    inputs, targets = linear_forecast.features(data.train), data.train.values.reshape(7, -1)
    for some in linear_forecast.RIDGES:
        found = np.linalg.solve(inputs.T @ inputs + some * np.eye(7), inputs.T @ targets)
        error = linear_forecast.features(data.validation) @ found - data.validation.values.reshape(11, -1)
        errors.append(np.mean(error**2))
    assert ridge == linear_forecast.RIDGES[int(np.argmin(errors))] > min(linear_forecast.RIDGES)
    assert weights.shape == (7, 8)


def test_a_row_has_all_that_rows_have(law, tmp_path):
    data = _dataset(law, noise=0.1)
    row = linear_forecast.result(data, "linear")
    assert set(row) == set(rows.KEYS)
    weights, ridge = linear_forecast.fit(data)
    error = linear_forecast.features(data.test) @ weights - data.test.values.reshape(9, -1)
    assert row["metrics"]["mse"] == pytest.approx(np.mean(error**2), rel=1e-4)
    assert row["metrics"]["rmse"] == pytest.approx(row["metrics"]["mse"] ** 0.5)
    assert (row["num_params"], row["overrides"], row["source"]) == (7 * 8, {}, "pv.csv")
    assert row["config"]["ridge"] == ridge
    cell = Cell(row["experiment"], row["dataset"], row["model"], row["preset"], row["seed"])
    linear_forecast.files.write_json(cell.row_path(tmp_path), row)
    assert rows.select(rows.read_all(tmp_path, "vibration"), model="linear") == [row]


def test_the_two_regressions_differ_in_interpolation_only():
    plain, interpolated = (linear_forecast.data_options(model) for model in linear_forecast.MODELS)
    assert plain == {**interpolated, "interpolated": False}
    assert interpolated["interpolated"] is True
