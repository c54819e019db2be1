"""Every network of the library in a training of two steps, and what is left of it as a predictor."""

import json

import jax
import numpy as np
import pytest
from helpers import small_images, small_latent, small_runs, small_series

from ctfno_jax import metrics
from ctfno_jax.models import registry
from ctfno_jax.training import run

SMALL = {**dict.fromkeys(small_runs.NETWORKS, small_runs), **dict.fromkeys(small_series.NETWORKS, small_series)}


@pytest.fixture(scope="module", autouse=True)
def one_device():
    """What is tested here does not depend on devices."""
    with pytest.MonkeyPatch.context() as patch:
        every = jax.devices()
        patch.setattr(jax, "devices", lambda: every[:1])
        yield


def test_every_network_is_here():
    # Others read and answer differently; tests/tasks/test_latent.py and test_images.py have a training step of each.
    assert {*SMALL, *small_latent.NETWORKS, *small_images.NETWORKS} == set(registry.model_names())


# One network of each kind of data; the others take another minute.
_ALWAYS = ("pod_deeponet", "series_ctfno")


@pytest.mark.parametrize("name", [n if n in _ALWAYS else pytest.param(n, marks=pytest.mark.slow) for n in SMALL])
def test_two_steps_of_training_change_the_network_and_what_it_predicts_has_the_error_that_was_found(name, monkeypatch):
    task, initial = SMALL[name].task(name), []
    init = task.init

    def remembered(key):
        params = init(key)
        initial.append(jax.tree.map(np.array, params))  # copies: the training donates what it starts from
        return params

    monkeypatch.setattr(task, "init", remembered)
    (trained,) = run.train(task, optimizer=small_runs.OPTIMIZER, config=small_runs.TRAIN, show_progress=False)
    assert trained.step == trained.best_step == 2
    before, after = initial[0], jax.device_get(trained.params)
    moved = [
        not np.array_equal(a, b)
        for a, b in zip(*map(jax.tree.leaves, (before["params"], after["params"])), strict=True)
    ]
    assert np.mean(moved) > 0.5
    for a, b in zip(*(jax.tree.leaves(p.get("constants", {})) for p in (before, after)), strict=True):
        np.testing.assert_array_equal(a, b)
    # All that a predictor is rebuilt from is JSON.
    assert registry.from_dict(json.loads(json.dumps(task.describe()))["model"]) == task.model
    some = task.data.validation
    u0, u = (some.u0, some.u) if SMALL[name] is small_runs else (some.observed, some.values)
    # Arrays of the host, as the training evaluated them: the program is compiled for these.
    found = task.predict(after, u0, some.times)
    assert found.shape == u.shape
    assert metrics.rmse(found, u) == pytest.approx(trained.metrics["validation_rmse"], rel=1e-5)
