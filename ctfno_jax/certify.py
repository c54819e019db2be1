"""A proven bound on how far an error in the input can grow, at every query time.

For each time t, ``certify`` gives a number L(t) with

    || u(t; a) - u(t; b) ||_2  <=  L(t) || a - b ||_2     for all initial states a, b, on every grid,

for the network with these parameters in exact arithmetic; rounding errors are not part of it.

Zero padding is an isometry and cropping a contraction; both commute with the pointwise maps next to them, so neither
appears in the bound. Coordinates and biases are constants and drop out of the difference.

A residual connection adds one to the operator's constant, scaled by the factor of its output; the constant of a
composition is the product over its steps.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.core import Tracer
from jaxtyping import Array, Float

from ctfno_jax.models import composition, ctfno, dynamics, inputs, latent, observed
from ctfno_jax.ops import lipschitz, spectral
from ctfno_jax.types import Apply, Params

# Times whose Jacobians are iterated together: more take more memory, as a linearised network keeps all its layers.
_TIMES_AT_ONCE = 8


@dataclasses.dataclass(frozen=True)
class LayerBound:
    """Norms of one Fourier layer, one value for each query time.

    Attributes:
      name: of the layer in the parameters.
      pointwise: norm of W(t).
      kernel: largest norm of R(t, xi) over the frequencies.
      combined: norm of their sum as an operator, at most ``pointwise + kernel``; this is what is used.
      gershgorin: largest L1 norm of a row of R(t, xi) or W(t), which ``stability_bound`` limits.
    """

    name: str
    pointwise: Float[np.ndarray, " time"]
    kernel: Float[np.ndarray, " time"]
    combined: Float[np.ndarray, " time"]
    gershgorin: Float[np.ndarray, " time"]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Bounds at each query time.

    Attributes:
      times: the query times.
      lipschitz: proven upper bound on the L2 Lipschitz constant of ``u0 -> u(t)``.
      product: the weaker bound by the plain product of all norms, for comparison.
      layers: bounds of the Fourier layers; inside Semigroup, those of the last step.
      lifting: norm of the lifting, on the state's channels.
      projection: norm of the last map (of its two maps' product with the activation's slope, for an MLP).
    """

    times: Float[np.ndarray, " time"]
    lipschitz: Float[np.ndarray, " time"]
    product: Float[np.ndarray, " time"]
    layers: tuple[LayerBound, ...]
    lifting: float
    projection: float


def certify(model: nn.Module, params: Params, times: Float[Array, " time"], *, exact: bool = True) -> Certificate:
    """Bounds for a model and its parameters at some times.

    Args:
      model: a CTFNO, or Residual and Semigroup around one, in any order.
      params: its variables, as ``model.init`` returned them.
      times: ``(time,)``.
      exact: True for singular values, False for bounds that need none: faster for very wide models, and larger.

    Returns:
      The certificate.
    """
    problem = uncertifiable(model)
    if problem is not None:
        raise ValueError(problem)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((params, times))):
        raise ValueError("certify needs concrete parameters and times; call it outside jit")
    # Concrete values stay concrete where certify is called while something else is traced.
    with jax.ensure_compile_time_eval():
        queries = np.atleast_1d(np.asarray(inputs.as_float(times)))
        if queries.ndim != 1:
            raise ValueError(f"times must have shape (time,), got {queries.shape}")
        inputs.check_times(queries)
        return _certify(model, params["params"], queries, exact)


def uncertifiable(model: Any) -> str | None:
    """Reason why a model has no certificate; None if it has one."""
    if isinstance(model, composition.Residual | composition.Semigroup):
        return uncertifiable(model.operator)
    if not isinstance(model, ctfno.CTFNO):
        return f"only CTFNO, and Residual or Semigroup around it, have a certificate, got {type(model).__name__}"
    return None


def _certify(model: Any, params: Any, times: np.ndarray, exact: bool) -> Certificate:
    if isinstance(model, composition.Residual):
        return _certify_residual(model, params, times, exact)
    if isinstance(model, composition.Semigroup):
        return _certify_semigroup(model, params, times, exact)
    return _certify_ctfno(model, params, times, exact)


def _certify_ctfno(model: ctfno.CTFNO, params: Any, times: np.ndarray, exact: bool) -> Certificate:
    norm_fn = lipschitz.spectral_norm if exact else lipschitz.cheap_norm
    before, after = _pointwise_stages(model, params)
    layers = _time_factors(model, params, times)
    rows = []
    for index in range(len(times)):
        matrices = [_layer_matrices(weights, factors, index) for weights, factors in layers]
        stages = [*before, *[_operator(w, k) for w, k in matrices], *after]
        slopes = [lipschitz.GELU_SLOPE] * (len(stages) - 1)
        if model.lifting == "linear":
            # A real matrix and a layer right after it are one stage.
            stages[:2] = [stages[0] @ stages[1]]
            del slopes[0]
        else:
            slopes[1] = lipschitz.REAL_PART_SLOPE
        segments = lipschitz.segment_norms(stages, norm_fn)
        details = [
            (norm_fn(w), norm_fn(k), norm_fn(_operator(w, k)), max(np.abs(w).sum(-2).max(), np.abs(k).sum(-2).max()))
            for w, k in matrices
        ]
        product = lipschitz.product_bound(list(np.diag(segments)), slopes)
        rows.append((lipschitz.path_bound(segments, slopes), product, details))
    bounds, products, details = zip(*rows, strict=True)
    per_layer = np.asarray(details)  # (time, layer, 4)
    return Certificate(
        times=times,
        lipschitz=np.asarray(bounds),
        product=np.asarray(products),
        layers=tuple(LayerBound(f"layer_{i}", *per_layer[:, i].T) for i in range(model.depth)),
        lifting=norm_fn(before[0]),
        projection=lipschitz.product_bound([norm_fn(stage) for stage in after]),
    )


def _certify_residual(model: composition.Residual, params: Any, times: np.ndarray, exact: bool) -> Certificate:
    """``1 + t / (t + rise_time) L(t)`` with L of the operator."""
    inner = _certify(model.operator, params["operator"], times, exact)
    t = np.asarray(times, np.float64)
    rise = t / (t + model.rise_time)
    return dataclasses.replace(inner, lipschitz=1 + rise * inner.lipschitz, product=1 + rise * inner.product)


def _certify_semigroup(model: composition.Semigroup, params: Any, times: np.ndarray, exact: bool) -> Certificate:
    """``L(rest) G(step_size)^n`` with n whole steps, and G the growth of a state in one of them.

    G is L of the operator if the state is the solution. With constant channels c, a step maps ``(u, c)`` to
    ``(operator(u, c), c)``, whose Lipschitz constant is at most ``sqrt(L^2 + 1)``.
    """
    whole, rest = composition.split_times(times, model.step_size, model.num_steps)
    asked = np.append(rest, np.asarray(model.step_size, times.dtype))
    inner = _certify(model.operator, params["operator"], asked, exact)
    constants = _has_constant_channels(model, params)

    def composed(bound: np.ndarray) -> np.ndarray:
        step = np.hypot(bound[-1], 1) if constants else bound[-1]
        return bound[:-1] * step**whole

    return Certificate(
        times=times,
        lipschitz=composed(inner.lipschitz),
        product=composed(inner.product),
        layers=tuple(_at_first(layer, len(times)) for layer in inner.layers),
        lifting=inner.lifting,
        projection=inner.projection,
    )


def _has_constant_channels(model: Any, params: Any) -> bool:
    """True if u0 has more channels than the solution."""
    while not isinstance(model, ctfno.CTFNO):
        model, params = model.operator, params["operator"]
    return _num_state_channels(model, params) > model.out_channels


def _at_first(layer: LayerBound, num_times: int) -> LayerBound:
    return LayerBound(layer.name, *(getattr(layer, f.name)[:num_times] for f in dataclasses.fields(layer)[1:]))


def observed_lipschitz(
    model: observed.ObservedCTFNO, params: Params, times: Float[Array, " time"], *, exact: bool = True
) -> Float[np.ndarray, " time"]:
    """For each time, a proven bound on the L2 Lipschitz constant of the map from observed values to the forecast.

    Points are mapped to functions by one matrix, and functions back by another; the operator is between them. Times of
    observation, if the model reads any, are not values: an error in them is not part of it.
    """
    weights = params["params"]
    inside = certify(model.operator, {"params": weights["operator"]}, times, exact=exact).lipschitz
    embedding = np.asarray(weights["point_embedding"]["weight"], np.float64)[: model.out_features]
    projection = np.asarray(weights["point_projection"]["weight"], np.float64)
    return inside * lipschitz.spectral_norm(embedding[None]) * lipschitz.spectral_norm(projection[None])


def latent_lipschitz(
    model: latent.LatentModel, params: Params, times: Float[Array, " time"], *, exact: bool = True
) -> Float[np.ndarray, " time"]:
    """For each time, a proven bound on the L2 Lipschitz constant of the map from the latent state to the answer.

    The answer are values, or scores of classes, in the units of the network. The operator moves the latent state; the
    maps of the decoder follow, with tanh between them, whose slope is at most one.
    """
    if not isinstance(model.dynamics, dynamics.GridDynamics):
        raise ValueError(
            f"there is a certificate for latent states that CTFNO moves, not for {type(model.dynamics).__name__}"
        )
    weights = params["params"]
    inside = certify(model.dynamics.operator, {"params": weights["dynamics"]["operator"]}, times, exact=exact).lipschitz
    after = weights["classifier"] if model.num_classes else weights["decoder"]
    matrices = [np.asarray(value, np.float64) for name, value in after.items() if name.startswith("weight")]
    return inside * math.prod(lipschitz.spectral_norm(matrix[None]) for matrix in matrices)


def singular_values(
    model: ctfno.CTFNO, params: Params, times: Float[Array, " time"]
) -> tuple[Float[np.ndarray, "time layer frequencies width"], Float[np.ndarray, "time layer width"]]:
    """Of R(t, xi) and of W(t) in every layer, as they act: after stabilisation, the largest first."""
    layers = _time_factors(model, params["params"], np.asarray(inputs.as_float(times)))
    every = [[_layer_matrices(w, f, index) for w, f in layers] for index in range(len(times))]
    kernels, pointwise = (np.asarray([[pair[i] for pair in some] for some in every]) for i in (1, 0))
    return np.linalg.svd(kernels, compute_uv=False), np.linalg.svd(pointwise, compute_uv=False)


def _pointwise_stages(model: ctfno.CTFNO, params: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Stages before and after the Fourier layers."""
    lifting = np.asarray(params["lifting"]["weight"], np.float64)
    before: list[np.ndarray] = [lifting[None, : _num_state_channels(model, params)]]
    if model.lifting == "low_pass":
        re, im = (np.asarray(params["low_pass"][name], np.float64) for name in ("weight_re", "weight_im"))
        weight = re + 1j * im
        # The block of all other frequencies, which the low-pass drops, stands last.
        retained = np.broadcast_to(weight, (math.prod(spectral.modes_shape(tuple(model.modes))), *weight.shape))
        before.append(np.concatenate([retained, np.zeros_like(weight)[None]]))
    after = [np.asarray(params["projection"]["weight"], np.float64)[None]]
    if model.head == "mlp":
        after.insert(0, np.asarray(params["hidden_projection"]["weight"], np.float64)[None])
    return before, after


def _num_state_channels(model: ctfno.CTFNO, params: Any) -> int:
    """Channels of u0: the first inputs of the lifting, before the coordinates."""
    return params["lifting"]["weight"].shape[0] - (len(model.modes) if model.coordinates else 0)


def _time_factors(model: ctfno.CTFNO, params: Any, times: np.ndarray) -> Any:
    """Weights and time factors of every layer, on the host."""
    # One program for all of them, kept for the next call.
    return jax.tree.map(np.asarray, _compiled_time_factors(_with_tuples(model), params, times))


@functools.partial(jax.jit, static_argnums=0)
def _compiled_time_factors(model: ctfno.CTFNO, params: Any, times: Array) -> Any:
    return model.apply({"params": params}, times, method="time_factors")


def _with_tuples(model: ctfno.CTFNO) -> ctfno.CTFNO:
    """The model with tuples for the lists among its fields: an argument that is compiled for must be hashable."""
    values = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    changed: dict[str, Any] = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return model.clone(**changed, parent=None, name=None)


def _layer_matrices(weights: Any, factors: Any, index: int) -> tuple[np.ndarray, np.ndarray]:
    """W(t) as ``(in, out)`` and R(t, xi) as ``(frequencies, in, out)`` at one time, in float64."""
    at = jax.tree.map(lambda x: np.asarray(x[index], np.float64), factors)
    pointwise = at.scale[:, None] * np.asarray(weights.pointwise, np.float64)
    if at.pointwise_rows is not None:
        pointwise = pointwise * at.pointwise_rows
    kernel = np.asarray(weights.kernel.re, np.float64) + 1j * np.asarray(weights.kernel.im, np.float64)
    kernel = kernel * (at.phi.re + 1j * at.phi.im)[..., None, :]
    if at.kernel_columns is not None:
        kernel = kernel * at.kernel_columns[..., None]
    return pointwise, kernel.reshape(-1, *kernel.shape[-2:])


def _operator(pointwise: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Blocks of ``W(t) + R(t, xi)`` at the retained frequencies, and of W(t) alone, which acts on all others."""
    return np.concatenate([pointwise + kernel, pointwise[None].astype(kernel.dtype)])


def measured_gain(
    apply_fn: Apply,
    params: Params,
    u0: Float[Array, "*space channels"],
    times: Float[Array, " time"],
    *,
    num_iterations: int = 30,
    seed: int = 0,
) -> Float[np.ndarray, " time"]:
    """Largest singular value of the Jacobian of ``u0 -> u(t)`` at one state, by power iteration, for each time.

    It is a lower bound on the Lipschitz constant: what an input error does grow by, where a certificate says by how
    much it can.

    Args:
      apply_fn: ``(params, u0, times) -> u`` for a batch of states, each with its own times ``(batch, time)``.
      params: first argument of ``apply_fn``.
      u0: the state.
      times: query times.
      num_iterations: of the power method.
      seed: of its random start.
    """
    times = inputs.as_float(times)
    start = jax.random.normal(jax.random.key(seed), u0.shape, u0.dtype)
    over_state = tuple(range(1, u0.ndim + 1))

    def normalized(directions: Array) -> Array:
        return directions / jnp.sqrt(jnp.sum(jnp.square(directions), axis=over_state, keepdims=True))

    def gains(some_times: Float[Array, " time"]) -> Float[Array, " time"]:
        """Several times at once, each for a copy of the state: the Jacobian of the batch is block-diagonal."""
        copies = jnp.broadcast_to(u0, (len(some_times), *u0.shape))
        solve = lambda a: apply_fn(params, a, some_times[:, None])[:, 0]  # noqa: E731
        _, forward = jax.linearize(solve, copies)
        backward = jax.linear_transpose(forward, copies)
        iterate = lambda _, directions: normalized(backward(forward(directions))[0])  # noqa: E731
        directions = jax.lax.fori_loop(0, num_iterations, iterate, normalized(jnp.broadcast_to(start, copies.shape)))
        grown = forward(directions)
        return jnp.sqrt(jnp.sum(jnp.square(grown), axis=tuple(range(1, grown.ndim))))

    size = min(_TIMES_AT_ONCE, len(times))
    # The last time fills up the last part.
    parts = jnp.pad(times, (0, -len(times) % size), mode="edge").reshape(-1, size)
    return np.asarray(jax.lax.map(gains, parts)).reshape(-1)[: len(times)]
