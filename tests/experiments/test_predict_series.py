"""Answers for series in a CSV file: one line for every series, time and feature, with a standard deviation."""

import csv

import numpy as np
import pytest
from helpers import small_latent

from ctfno_jax import load_dataset, load_predictor
from ctfno_jax.config import OptimizerConfig, TrainConfig
from ctfno_jax.models import registry
from ctfno_jax.tasks.latent import LatentSettings, LatentTask
from ctfno_jax.training import run
from ctfno_jax.training.workdir import Workdir
from experiments import predict_series

TIMES = np.asarray([2.0, 0.5, 3.25])


def _write(path, count, order=("height", "speed"), seed=0):
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["series", "time", *order])
        for i in range(count):
            for t in np.sort(rng.uniform(0, 4, 6)):
                values = {"height": f"{100 + 9 * np.sin(t + i):.4f}", "speed": f"{np.cos(t + i):.5f}"}
                if rng.random() < 0.3:
                    values["speed"] = ""
                writer.writerow([f"s{i:02d}", f"{t:.5f}", *(values[name] for name in order)])
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a short run on twelve series, and its file."""
    folder = tmp_path_factory.mktemp("csv")
    path = _write(folder / "mine.csv", 12)
    data = load_dataset("csv", data_dir=path, observed=0.5)
    model = registry.build_model("latent_ctfno", **small_latent.NETWORKS["latent_ctfno"])
    task = LatentTask(data, model, LatentSettings(task="interpolation", batch_size=8))
    with Workdir(folder / "run", {}) as workdir:
        run.train(task, optimizer=OptimizerConfig(), config=TrainConfig(4, 2, 2), workdirs=[workdir],
                  show_progress=False)  # fmt: skip
    return folder / "run", path


def _lines(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_series_time_and_feature_has_a_value_with_its_standard_deviation(trained, tmp_path):
    folder, path = trained
    predictor = load_predictor(folder)
    output = tmp_path / "deep" / "answer.csv"
    text = predict_series.write(predictor, path, TIMES, output, num_draws=8)
    assert text.endswith("answer.csv: 12 series at 3 times, 2 features")
    lines = _lines(output)
    assert len(lines) == 12 * 3 * 2
    assert list(lines[0]) == ["series", "time", "feature", "value", "std"]
    assert [line["time"] for line in lines[:6]] == ["2", "2", "0.5", "0.5", "3.25", "3.25"]
    assert [line["feature"] for line in lines[:2]] == ["height", "speed"]
    noise = predictor.description["metrics"]
    assert all(float(line["std"]) > 0.999 * noise[f"validation_noise_{line['feature']}"] > 0 for line in lines)
    heights = [float(line["value"]) for line in lines if line["feature"] == "height"]
    assert 60 < np.mean(heights) < 140  # real units


def test_the_order_of_columns_and_lines_does_not_matter(trained, tmp_path):
    folder, path = trained
    predictor = load_predictor(folder)
    head, *body = path.read_text().splitlines()
    swapped = _write(tmp_path / "swapped.csv", 12, order=("speed", "height"))
    shuffled = tmp_path / "shuffled.csv"
    shuffled.write_text("\n".join([head, *np.random.default_rng(0).permutation(body)]) + "\n")
    made = []
    for i, some in enumerate((path, swapped, shuffled)):
        predict_series.write(predictor, some, TIMES, tmp_path / f"{i}.csv", num_draws=2)
        made.append((tmp_path / f"{i}.csv").read_text())
    assert made[0] == made[1] == made[2]


def test_one_series_is_enough_for_a_prediction(trained, tmp_path):
    folder, _ = trained
    path = _write(tmp_path / "one.csv", 1, seed=4)
    text = predict_series.write(load_predictor(folder), path, TIMES[:1], tmp_path / "one_answer.csv", num_draws=2)
    assert text.endswith("1 series at 1 times, 2 features")


def test_times_beyond_the_training_data_are_answered_with_a_note(trained, tmp_path):
    folder, path = trained
    predictor = load_predictor(folder)
    said = predict_series.write(predictor, path, np.asarray([1.0, 9.5]), tmp_path / "u.csv", num_draws=2)
    assert said.startswith("note: times up to 9.5 lie beyond the training horizon of 3.")
    assert len(_lines(tmp_path / "u.csv")) == 12 * 2 * 2
    inside = predict_series.write(predictor, path, np.asarray([1.0]), tmp_path / "u.csv", num_draws=2)
    assert "note" not in inside


def test_other_features_another_ending_and_another_run_are_refused(trained, tmp_path):
    folder, path = trained
    predictor = load_predictor(folder)
    with pytest.raises(ValueError, match=r"--output must end in \.csv for an input in CSV"):
        predict_series.write(predictor, path, TIMES, tmp_path / "u.npz", num_draws=2)
    other = tmp_path / "other.csv"
    other.write_text("series,time,height,weight\na,0,1,2\n")
    message = "has the features height, weight; the run was trained on height, speed"
    with pytest.raises(ValueError, match=message):
        predict_series.write(predictor, other, TIMES, tmp_path / "u.csv", num_draws=2)
    predictor.description["task"] = "fields"
    with pytest.raises(ValueError, match=r"the run reads arrays: give --input as \.npy"):
        predict_series.write(predictor, path, TIMES, tmp_path / "u.csv", num_draws=2)
    assert not (tmp_path / "u.csv").exists()
