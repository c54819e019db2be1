"""The timed forms compute the same function, operations are counted right, and an epoch is counted in batches."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from helpers import small_latent

from ctfno_jax.config import NetworkConfig
from ctfno_jax.data import series
from ctfno_jax.models.classifiers import FNOClassifier
from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.models.registry import build_model
from ctfno_jax.tasks.series import SeriesSettings, SeriesTask
from experiments import configs, obvious, operator_timing, timing, timing_lines

CTFNO_FIELDS = {"width": 4, "modes": [3], "depth": 1, "heads": 1, "time_width": 4, "time_features": 4}


def test_the_direct_transcription_is_the_same_function():
    model = CTFNO(
        out_channels=2, width=8, modes=(5,), depth=2, heads=2, time_width=6, time_features=4, time_scale=7.0,
        coordinates=True,
    )  # fmt: skip
    u0 = jax.random.normal(jax.random.key(0), (3, 12, 1))
    times = jnp.asarray([0.3, 0.0, 1.7, 0.9])
    params = jax.jit(model.init)(jax.random.key(1), u0, times)
    found = jax.jit(lambda *args: obvious.apply(model, *args))(params, u0, times)
    np.testing.assert_allclose(found, jax.jit(model.apply)(params, u0, times), atol=2e-5)


@pytest.mark.parametrize("coordinates", [True, False])
def test_the_direct_transcription_of_the_classifier_is_the_same_function(coordinates):
    model = FNOClassifier(
        num_classes=5, width=6, modes=(3, 4), depth=2, num_blocks=3, coordinates=coordinates, padding=0.2
    )
    images = jax.random.uniform(jax.random.key(0), (4, 10, 13, 2))
    params = jax.jit(model.init)(jax.random.key(1), images)
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)  # biases are zero at the start
    found = jax.jit(lambda *args: obvious.classify(model, *args))(params, images)
    np.testing.assert_allclose(found, jax.jit(model.apply)(params, images), atol=2e-5)


def test_operations_by_hand():
    model = CTFNO(width=4, modes=(3,), depth=2)
    # Per sample and time: three transforms of 10 points, 6 rows and 4 channels; one complex mixing of 3 frequencies;
    # one pointwise map and the head at 10 points.
    transforms, mixing, pointwise, head = 3 * 2 * 10 * 6 * 4, 8 * 3 * 16, 2 * 10 * 16, 2 * 10 * 4
    forward, both = operator_timing.operations(model, batch=2, num_times=5, num_points=10)
    assert forward == 10 * (transforms + mixing + pointwise + head)
    assert both == 10 * (2 * transforms + 3 * (mixing + pointwise + head))


@pytest.fixture
def seconds(monkeypatch):
    """Half a second for a training step, a quarter for an evaluation; both are traced, so that they must fit."""

    def best_seconds(fn, *args, repeats, **_):
        jax.eval_shape(fn, *args)
        return 0.5 if len(args) == 2 else 0.25

    monkeypatch.setattr(timing, "best_seconds", best_seconds)


@pytest.mark.slow
def test_an_epoch_is_one_step_as_often_as_it_has_batches(monkeypatch, seconds):
    small = {
        "ctfno": CTFNO_FIELDS,
        "fno_rnn": {"width": 4, "modes": [3], "depth": 1, "head_width": 4, "num_times": 50, "time_step": 0.05},
        "fno_2d": {"width": 4, "modes": [3, 2], "depth": 1, "head_width": 4, "num_times": 50, "final_time": 2.5},
    }
    original = configs.cell
    monkeypatch.setattr(
        configs,
        "cell",
        lambda e, d, m, p: dataclasses.replace(original(e, d, m, p), network=NetworkConfig(m, small[m])),
    )
    made = timing.heat(1, num_train=60, num_test=40, num_points=8)
    assert set(made["models"]) == {*small, "fno_2d with FFT"}
    for numbers in made["models"].values():
        assert (numbers["training"], numbers["inference"]) == (3 * 0.5, 2 * 0.25)
        assert numbers["num_params"] > 0
    assert made["size"] == {"num_train": 60, "num_test": 40, "num_times": 50, "num_points": 8}


class _Last(nn.Module):
    """A model without a vector field: the last observation, scaled, at all times."""

    @nn.compact
    def __call__(self, observed, times):
        return jnp.repeat(self.param("scale", nn.initializers.ones, ()) * observed[:, -1:], len(times), axis=1)


@pytest.mark.slow
def test_adaptive_solvers_are_timed_on_trained_runs_with_their_evaluations(monkeypatch, seconds, tmp_path):
    draw = np.random.default_rng(0).standard_normal
    some = series.observe(0.5 * np.arange(1, 8), draw((3, 7, 2)).astype(np.float32), 4)
    data = series.SeriesDataset("spiral", some, some, None, {})
    euler = {"solver": "euler", "stepping": "constant", "step_size": 0.5, "max_steps": 16, "width": 3, "depth": 1}
    models = {
        "ctfno": _Last(),
        "node": build_model("series_neural_ode", out_features=2, **euler),
    }
    folders = []

    def load(folder):
        folders.append(folder)
        model = models[folder.parent.name]
        params = jax.jit(model.init)(jax.random.key(0), some.observed[:1], some.times[:1])
        return types.SimpleNamespace(model=model, params=params)

    def task(config, **_):
        return SeriesTask(data, models[config.model], SeriesSettings(batch_size=3))

    monkeypatch.setattr(timing, "load_predictor", load)
    monkeypatch.setattr(timing.SeriesTask, "from_config", task)
    monkeypatch.setitem(timing.SERIES, "dynamics", ("synthetic", "spiral", "default", tuple(models)))
    found = timing.dynamics("dynamics", tmp_path, 1)
    assert folders == [tmp_path / "synthetic" / "spiral" / "node" / "seed0"]
    assert found["batch_size"] == 3
    made = found["models"]
    assert (made["ctfno"]["training"], made["ctfno"]["inference"]) == (0.5, 0.25)
    assert "function_evaluations" not in made["ctfno"]
    # Three steps of half a unit reach the last query, with one evaluation each.
    assert made["node"]["function_evaluations"] >= 3


@pytest.mark.slow
def test_an_epoch_of_the_hopper_asks_for_all_times(monkeypatch):
    asked = []

    def task(config, **_):
        assert config.settings["times_per_step"] == 0
        return small_latent.task(batch_size=4)

    def best_seconds(fn, *args, repeats, **_):
        if len(args) == 2 and hasattr(args[1], "observed") and not hasattr(args[1], "target"):
            asked.append(args[1].times.shape)
        return 0.5

    monkeypatch.setattr(timing.LatentTask, "from_config", task)
    monkeypatch.setattr(timing, "best_seconds", best_seconds)
    monkeypatch.setattr(timing, "LATENT_MODELS", ("ctfno",))
    made = timing.mujoco(1)
    # Sixteen series are four steps of half a second; five series are predicted in half a second, 2000 in 200 s.
    assert made["models"]["ctfno"]["training"] == 2
    assert made["models"]["ctfno"]["inference"] == 200
    assert asked == [(8,)]


@pytest.mark.slow
def test_a_step_of_a_classifier_is_timed_in_all_its_forms(monkeypatch):
    called = []

    def best_seconds(fn, state, batch, *, repeats):
        # Traced, so that all forms must fit; the seconds are the order of the calls.
        jax.eval_shape(fn, state, batch)
        called.append(batch.images.shape)
        return float(len(called))

    monkeypatch.setattr(timing, "best_seconds", best_seconds)
    made = timing.images(1)
    assert called == [(256, 28, 28, 1)] * 3 + [(256, 32, 32, 3)] * 3
    assert made["datasets"]["mnist"]["seconds"] == {"ours": 1.0, "obvious": 2.0, "obvious in parts": 3.0}
    assert made["datasets"]["mnist"]["num_params"] == 67_114
    made = {**made, "devices": ["cpu:cpu"]}
    title, lines = timing_lines.TIMINGS["images"](made)
    assert "256 images, in parts of 16" in title
    assert lines[2] == ["mnist", "direct transcription", "2000", "2.00", "67,114"]
    assert lines[5] == ["cifar10", "direct transcription", "5000", "1.25", "156,874"]


def test_notes_give_rates_and_growth():
    made = {
        "sizes": [{"size": [2, 3, 4], "matmul_gflops": 100.0,
                   "fraction_of_matmul": {"forward": 0.4, "forward_backward": 0.25}}],
        "growth": {"width": [(32, 0.01), (64, 0.03)]},
    }  # fmt: skip
    first, second = operator_timing.notes(made).splitlines()
    assert "2 x 3 x 4: CTFNO runs at 40% forward and 25% forward and backward" in first
    assert second == "width: 32: 10.0 ms (x 1.0), 64: 30.0 ms (x 3.0)"


def test_a_record_says_how_it_was_made():
    made = timing.record("heat", {"models": {}})
    assert made["command"] == "python -m experiments.timing --measure=heat"
    assert made["models"] == {}
    assert made["devices"] == [f"{d.platform}:{d.device_kind}" for d in jax.local_devices()]
    assert "jax" in made["versions"]
