"""Seconds of a training step and of a forecast on the spiral, of all models in one run.

What an adaptive solver costs depends on the field that was learned, so the models are those of trained runs. Both
numbers are for 120 series at all 100 times, whatever a training step of the preset reads.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ctfno_jax.data import batching, synthetic
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.predict import load_predictor
from ctfno_jax.training import objectives, optimizers
from ctfno_jax.training import step as step_lib
from experiments.configs import synthetic as presets

_BATCH = 120


def measure(runs: Path, best_seconds: Callable[..., float], repeats: int) -> dict[str, Any]:
    """Seconds of every model, with the evaluations of the vector field of those that have one."""
    data = synthetic.load_series("spiral", num_train=864, num_validation=96, num_test=97).train.select(slice(_BATCH))
    u0, times, target = (jnp.asarray(a) for a in (data.observed, data.times, data.values))
    numbers: dict[str, Any] = {}
    for name in presets.MODELS:
        predictor = load_predictor(runs / "synthetic" / "spiral" / name / "seed0")
        model, config = predictor.model, predictor.config
        assert isinstance(predictor.params, dict)
        optimizer = optimizers.optimizer(config.optimizer, config.train.steps)
        state = step_lib.create_state(predictor.params, optimizer, jax.random.key(0))
        loss = step_lib.make_loss(model.apply, objectives.objective("mse"))
        step = jax.jit(functools.partial(step_lib.train_step, loss_fn=loss, optimizer=optimizer))
        numbers[name] = {
            "training": best_seconds(step, state, batching.Batch(u0, times, target), repeats=repeats),
            "inference": best_seconds(jax.jit(model.apply), predictor.params, u0, times, repeats=repeats),
            "num_params": num_parameters(predictor.params["params"]),
        }
        if hasattr(model, "stepping"):
            _, count = jax.jit(functools.partial(model.apply, count_evaluations=True))(predictor.params, u0, times)
            numbers[name]["function_evaluations"] = float(jnp.mean(count))
        print(
            f"{name}: {1e3 * numbers[name]['training']:.1f} ms, {1e3 * numbers[name]['inference']:.1f} ms", flush=True
        )
    return {"experiment": "timing", "dataset": "spiral", "batch_size": _BATCH, "models": numbers}
