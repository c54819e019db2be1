"""Types of numbers: float64 throughout where it is enabled, float32 otherwise, and real numbers only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import small_ctfno

from ctfno_jax.certify import certify, measured_gain, singular_values
from ctfno_jax.models import registry

FOURIER = {"width": 4, "modes": [3], "depth": 1}
CTFNO = {**FOURIER, "heads": 2, "time_width": 4, "time_features": 4}
TIME_CHANNELS = {**FOURIER, "time_features": 4, "time_channels": 3}
EULER = {"width": 5, "depth": 1, "solver": "euler", "stepping": "constant", "step_size": 0.5, "adjoint": "direct"}
FIELD_MODELS = {
    "ctfno": CTFNO,
    "ctfno_semigroup": {**CTFNO, "step_size": 0.5, "num_steps": 3, "rise_time": 0.2},
    "fno_rnn": {**FOURIER, "head_width": 5, "time_step": 0.5, "num_times": 3},
    "fno_2d": {**FOURIER, "modes": [3, 2], "head_width": 5, "final_time": 1.5, "num_times": 3},
    "deeponet": {"width": 6, "depth": 1, "num_sensors": 8},
    "pod_deeponet": {"width": 6, "depth": 1, "num_sensors": 8, "num_modes": 3},
    "ablation_input": FOURIER,
    "ablation_lifted": TIME_CHANNELS,
    "ablation_features": TIME_CHANNELS,
    "neural_ode": EULER,
    "neural_flow": {"num_layers": 2, "width": 5, "depth": 1, "num_sinusoids": 3},
    "neural_laplace": {"latent": 3, "encoder_width": 4, "width": 5, "depth": 1, "num_terms": 5},
}
SERIES_MODELS = {
    "series_ctfno": {**CTFNO, "grid_points": 6},
    "series_neural_ode": EULER,
    "series_neural_flow": {"hidden": 5, "readout": 6, "width": 4, "depth": 1},
    "series_neural_laplace": {"encoder_width": 4, "width": 6, "depth": 1, "num_terms": 5},
    "sonode": {"out_features": 1, "hidden": 3},
}
TIMES = np.asarray([1.5, 0.5])


def _inputs(dtype):
    """A field, or a series of one component, and times."""
    return np.random.default_rng(0).normal(size=(3, 8, 1)).astype(dtype), TIMES.astype(dtype)


# One of each way to answer; the others take another half minute.
_ALWAYS = ("ctfno", "fno_2d", "deeponet", "series_neural_ode")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        pytest.param(name, fields, marks=() if name in _ALWAYS else pytest.mark.slow)
        for name, fields in (FIELD_MODELS | SERIES_MODELS).items()
    ],
)
def test_every_model_computes_in_the_type_of_its_state_and_parameters(name, fields):
    """Traced only. Times of float64, which NumPy makes, do not change the type of a float32 result."""
    model = registry.build_model(name, **fields)
    with jax.enable_x64(True):
        u0, times = _inputs(np.float64)
        variables = jax.eval_shape(model.init, jax.random.key(0), u0, times)
        assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float64")}
        single = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), variables)
        in_double = jax.make_jaxpr(model.apply)(variables, u0, times)
        in_single = jax.make_jaxpr(model.apply)(single, u0.astype(np.float32), times.astype(np.float32))
        mixed = jax.eval_shape(model.apply, single, u0.astype(np.float32), times)
    assert (in_double.out_avals[0].dtype, in_single.out_avals[0].dtype) == (jnp.float64, jnp.float32)
    assert mixed.dtype == jnp.float32
    assert "f32[" not in str(in_double)
    # Diffrax keeps scalars of its step control in float64.
    assert "ode" in name or "f64[" not in str(in_single)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ctfno", {}),
        ("ctfno", {"modes": [2, 3], "lifting": "low_pass", "stability_bound": 0.4}),
        pytest.param("ctfno_semigroup", {}, marks=pytest.mark.slow),
        pytest.param("fno_rnn", {}, marks=pytest.mark.slow),
    ],
)
def test_fft_and_matmul_agree_to_double_precision(name, changes):
    fields = {**FIELD_MODELS[name], **changes}
    with jax.enable_x64(True):
        u0, times = _inputs(np.float64)
        u0 = u0.reshape(3, 8, 1) if len(fields["modes"]) == 1 else np.random.default_rng(1).normal(size=(3, 6, 7, 1))
        fft, matmul = (registry.build_model(name, **fields, fourier_method=method) for method in ("fft", "matmul"))
        variables = small_ctfno.init(fft, u0)
        one, other = (np.asarray(small_ctfno.run(model, variables, u0, times)) for model in (fft, matmul))
        in_single = small_ctfno.run(matmul, *jax.tree.map(lambda x: x.astype(np.float32), (variables, u0, times)))
    assert one.dtype == other.dtype == jnp.float64
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    assert in_single.dtype == jnp.float32
    assert 1e-9 < np.abs(one - np.asarray(in_single)).max() < 1e-4


@pytest.mark.slow
def test_certificates_in_single_and_double_precision_agree():
    model = registry.build_model("ctfno_semigroup", **FIELD_MODELS["ctfno_semigroup"])
    network = model.operator.operator
    # The composed model asks its network for the length of a step too: as many times are compiled for once.
    asked = np.asarray([1.5, 0.5, 1.0])

    def bounds(dtype):
        u0, times = _inputs(dtype)
        variables = jax.tree.map(lambda x: jnp.asarray(x, dtype), small_ctfno.init(model, u0))
        inner = {"params": variables["params"]["operator"]["operator"]}
        return inner, [
            certify(model, variables, times).lipschitz,
            *singular_values(network, inner, asked.astype(dtype)),
        ]

    _, single = bounds(np.float32)
    with jax.enable_x64(True):
        inner, double = bounds(np.float64)
        gain = measured_gain(network.apply, inner, _inputs(np.float64)[0][0], asked)
        assert np.all(gain <= certify(network, inner, asked).lipschitz)
    assert gain.dtype == double[1].dtype == np.float64
    for a, b in zip(single, double, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "fields"), FIELD_MODELS.items())
def test_states_that_are_not_real_numbers_are_refused(name, fields):
    u0, times = _inputs(np.float32)
    model = registry.build_model(name, **fields)
    for dtype, text in (
        (np.complex64, "got dtype complex64; pass real and imaginary parts as two channels"),
        (bool, "got dtype bool; convert it to float32"),
        (object, "got dtype object; convert it to float32"),
        (str, "got dtype <U32; convert it to float32"),
    ):
        with pytest.raises(ValueError, match=f"^u0 must hold real numbers, {text}"):
            model.init(jax.random.key(0), u0.astype(dtype), times)


@pytest.mark.parametrize(("name", "fields"), SERIES_MODELS.items())
def test_observations_that_are_not_real_numbers_are_refused(name, fields):
    observed, times = _inputs(np.float32)
    model = registry.build_model(name, **fields)
    with pytest.raises(ValueError, match=r"^observations must hold real numbers, got dtype complex64; pass real"):
        model.init(jax.random.key(0), observed.astype(np.complex64), times)


def test_complex_states_and_times_are_refused_under_jit_too():
    u0, times = _inputs(np.float32)
    model = registry.build_model("ctfno", **CTFNO)
    for name, inputs in (("u0", (u0 + 0j, times)), ("times", (u0, times + 0j))):
        with pytest.raises(ValueError, match=f"{name} must hold real numbers, got dtype complex64"):
            jax.jit(model.init)(jax.random.key(0), *inputs)


@pytest.mark.parametrize("dtype", [np.int32, np.float16, jnp.bfloat16])
def test_integers_and_half_precision_are_promoted(dtype):
    u0 = np.random.default_rng(0).integers(-2, 3, (3, 8, 1))
    model = registry.build_model("ctfno", **CTFNO)
    variables = small_ctfno.init(model, u0.astype(np.float32))
    expected = small_ctfno.run(model, variables, u0.astype(np.float32), TIMES)
    promoted = small_ctfno.run(model, variables, u0.astype(dtype), TIMES)
    assert promoted.dtype == jnp.float32
    np.testing.assert_allclose(promoted, expected, rtol=0, atol=small_ctfno.ATOL)
