"""Optimizers and schedules from a config."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ctfno_jax.config import OptimizerConfig
from ctfno_jax.training import optimizers

PEAK, NUM_STEPS = 0.02, 40


def _rate(step, **options):
    return float(optimizers.schedule(OptimizerConfig(learning_rate=PEAK, **options), NUM_STEPS)(step))


@pytest.mark.parametrize("step", [0, 1, 39, 1000])
def test_constant_schedule(step):
    assert _rate(step, schedule="constant") == pytest.approx(PEAK, rel=1e-6)


@pytest.mark.parametrize("step", [0, 6, 7, 13, 14, 39])
def test_step_schedule_multiplies_at_every_multiple(step):
    rate = _rate(step, schedule="step", decay_factor=0.5, decay_steps=7)
    assert rate == pytest.approx(PEAK * 0.5 ** (step // 7), rel=1e-6)


@pytest.mark.parametrize("step", [0, 6, 7, 14, 39])
def test_step_schedule_with_one_step_down(step):
    rate = _rate(step, schedule="step", decay_factor=0.1, decay_steps=7, final_fraction=0.1)
    assert rate == pytest.approx(PEAK * (1.0 if step < 7 else 0.1), rel=1e-6)


@pytest.mark.parametrize("step", [0, 1, 5, 39])
def test_exponential_schedule_stops_at_its_floor(step):
    rate = _rate(step, schedule="exponential", decay_factor=0.9, final_fraction=0.1)
    assert rate == pytest.approx(PEAK * max(0.9**step, 0.1), rel=1e-5)


@pytest.mark.parametrize("step", [0, 10, 20, 39, 40, 60])
def test_cosine_schedule_goes_from_peak_to_final_fraction(step):
    rate = _rate(step, schedule="cosine", final_fraction=0.05)
    share = 0.5 * (1 + np.cos(np.pi * min(step, NUM_STEPS) / NUM_STEPS))
    assert rate == pytest.approx(PEAK * (0.95 * share + 0.05), rel=1e-5)


@pytest.mark.parametrize("step", [0, 3, 8, 9, 24, 40, 60])
def test_one_cycle_schedule_rises_linearly_and_falls_as_a_cosine(step):
    rate = _rate(step, schedule="one_cycle", warmup_fraction=0.2, final_fraction=0.01)
    if step <= 8:
        expected = PEAK / 25 + (PEAK - PEAK / 25) * step / 8
    else:
        share = 0.5 * (1 + np.cos(np.pi * min(1.0, (step - 8) / 32)))
        expected = PEAK * (0.99 * share + 0.01)
    assert rate == pytest.approx(expected, rel=1e-5)


def test_one_cycle_of_a_single_step_is_still_a_schedule():
    rate = optimizers.schedule(OptimizerConfig(learning_rate=PEAK, schedule="one_cycle"), 1)(0)
    assert float(rate) == pytest.approx(PEAK / 25, rel=1e-5)


def _update(transformation, num_updates=1):
    params = {"a": jnp.asarray([1.0, -2.0, 3.0]), "b": jnp.asarray([[0.5, 4.0]])}
    grads = {"a": jnp.asarray([0.3, 5.0, -1.0]), "b": jnp.asarray([[2.0, -0.1]])}
    state = transformation.init(params)
    for _ in range(num_updates):
        updates, state = transformation.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.parametrize(
    ("name", "options", "reference"),
    [
        ("adam", {}, lambda: optax.adam(PEAK)),
        ("adamw", {"weight_decay": 0.3}, lambda: optax.adamw(PEAK, weight_decay=0.3)),
        ("adamax", {}, lambda: optax.adamax(PEAK)),
        ("sgd", {}, lambda: optax.sgd(PEAK)),
    ],
)
@pytest.mark.parametrize("clip_norm", [0.0, 0.7])
def test_updates_equal_those_of_optax(name, options, reference, clip_norm):
    config = OptimizerConfig(optimizer=name, learning_rate=PEAK, schedule="constant", clip_norm=clip_norm, **options)
    expected = reference()
    if clip_norm:
        expected = optax.chain(optax.clip_by_global_norm(clip_norm), expected)
    ours, theirs = _update(optimizers.optimizer(config, NUM_STEPS), 2), _update(expected, 2)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_clipping_limits_the_norm_of_the_whole_gradient():
    config = OptimizerConfig(optimizer="sgd", learning_rate=1.0, schedule="constant", clip_norm=0.5)
    unclipped = OptimizerConfig(optimizer="sgd", learning_rate=1.0, schedule="constant", clip_norm=0.0)
    start = {"a": jnp.asarray([1.0, -2.0, 3.0]), "b": jnp.asarray([[0.5, 4.0]])}
    steps = [
        np.concatenate([np.ravel(x) for x in jax.tree.leaves(jax.tree.map(jnp.subtract, start, _update(opt)))])
        for opt in (optimizers.optimizer(config, 1), optimizers.optimizer(unclipped, 1))
    ]
    assert np.linalg.norm(steps[0]) == pytest.approx(0.5, rel=1e-5)
    np.testing.assert_allclose(steps[0], 0.5 * steps[1] / np.linalg.norm(steps[1]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamax", "sgd"])
def test_weight_decay_is_refused_without_adamw(name):
    with pytest.raises(ValueError, match=rf"weight_decay=0\.1 needs optimizer adamw, got {name}"):
        optimizers.optimizer(OptimizerConfig(optimizer=name, weight_decay=0.1), NUM_STEPS)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match="unknown optimizer 'lion'; known are adam, adamw, adamax, sgd"):
        optimizers.optimizer(OptimizerConfig(optimizer="lion"), NUM_STEPS)
    with pytest.raises(ValueError, match="unknown schedule 'linear'; known are constant, step, cosine, one_cycle"):
        optimizers.optimizer(OptimizerConfig(schedule="linear"), NUM_STEPS)


@pytest.mark.parametrize("name", ["step", "exponential"])
def test_a_factor_of_one_does_not_decay(name):
    rate = optimizers.schedule(OptimizerConfig(learning_rate=0.3, schedule=name, decay_factor=1.0), NUM_STEPS)
    assert [float(rate(step)) for step in (0, NUM_STEPS)] == pytest.approx([0.3, 0.3])
