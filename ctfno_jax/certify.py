"""A proven bound on how far an error in the input can grow, at every query time.

For each time t, ``certify`` gives a number L(t) with

    || u(t; a) - u(t; b) ||_2  <=  L(t) || a - b ||_2     for all initial states a, b, on every grid,

for the network with these parameters in exact arithmetic; what float32 rounds is not part of it.

Zero padding is an isometry and cropping a contraction; both commute with the pointwise maps next to them, so neither
appears in the bound. Coordinates and biases are constants and drop out of the difference.

A model that adds to its initial state grows an error by at most one plus what it adds, and one that is composed with
itself by at most the product over its steps.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ctfno_jax.models import ctfno, inputs, latent, marching
from ctfno_jax.ops import lipschitz, spectral
from ctfno_jax.types import Apply, Params


@dataclasses.dataclass(frozen=True)
class LayerBound:
    """How one Fourier layer enters, one value for each query time.

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
      layers: what the Fourier layers contribute; of a model with a horizon, in its last step.
      lifting: norm of the lifting, on the state's channels.
      projection: norm of the last map (of its two maps' product with the activation's slope, for an MLP).
    """

    times: Float[np.ndarray, " time"]
    lipschitz: Float[np.ndarray, " time"]
    product: Float[np.ndarray, " time"]
    layers: tuple[LayerBound, ...]
    lifting: float
    projection: float


def certify(model: ctfno.CTFNO, params: Params, times: Float[Array, " time"], *, exact: bool = True) -> Certificate:
    """Bounds for a model and its parameters at some times.

    Args:
      model: a CTFNO.
      params: its variables, as ``model.init`` returned them.
      times: ``(time,)``.
      exact: True for singular values, False for bounds that need none: faster for very wide models, and larger.

    Returns:
      The certificate.
    """
    problem = uncertifiable(model)
    if problem is not None:
        raise ValueError(problem)
    times = jnp.atleast_1d(jnp.asarray(times, jnp.float32))
    if times.ndim != 1:
        raise ValueError(f"times must have shape (time,), got {times.shape}")
    inputs.check_times(times)
    if model.start != "free" or model.horizon is not None:
        return _certify_composed(model, params, times, exact)
    norm_fn = lipschitz.spectral_norm if exact else lipschitz.cheap_norm
    before, after = _pointwise_stages(model, params["params"])
    layers = model.apply(params, times, method=model.time_factors)
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
        times=np.asarray(times),
        lipschitz=np.asarray(bounds),
        product=np.asarray(products),
        layers=tuple(LayerBound(f"layer_{i}", *per_layer[:, i].T) for i in range(model.depth)),
        lifting=norm_fn(before[0]),
        projection=lipschitz.product_bound([norm_fn(stage) for stage in after]),
    )


def uncertifiable(model: Any) -> str | None:
    """Why there is no certificate for a model; None if there is."""
    if not isinstance(model, ctfno.CTFNO):
        return f"only CTFNO has a certificate, got {type(model).__name__}"
    if model.pointwise_dtype != "float32":
        return (
            f"a network that rounds to {model.pointwise_dtype} has no Lipschitz constant; "
            "certify model.clone(pointwise_dtype='float32')"
        )
    if model.start == "sound":
        return "how sound goes on depends on the viscosity in u0: start='sound' has no certificate"
    if model.keeps_range:
        return (
            "the range of u0 changes with single values of it, which an L2 norm hardly sees: keeps_range=True has no "
            "certificate, but no answer leaves that range"
        )
    return None


def _certify_composed(model: ctfno.CTFNO, params: Params, times: Array, exact: bool) -> Certificate:
    """Bounds of a model with a start or a horizon, from those of its network."""
    channels = params["params"]["lifting"]["weight"].shape[0] - (len(model.modes) if model.coordinates else 0)
    if model.horizon is not None and channels != model.out_channels:
        raise ValueError(
            f"a certificate for steps of a horizon needs as many channels of u0 as the solution has, got {channels} "
            f"and {model.out_channels}"
        )
    whole, rest = jnp.zeros(times.shape, jnp.int32), times
    if model.horizon is not None:
        whole, rest = marching.cut(times, model.horizon, model.max_steps)
    needed = jnp.append(rest, jnp.float32(model.horizon or 0.0))
    network = certify(model.at_once(), params, needed, exact=exact)

    def growth(bound: np.ndarray) -> np.ndarray:
        if model.rise_time is None:
            return bound
        t = np.asarray(needed, np.float64)
        return 1 + t / (t + model.rise_time) * bound

    bounds, products = (
        growth(b)[:-1] * growth(b)[-1] ** np.asarray(whole) for b in (network.lipschitz, network.product)
    )
    layers = tuple(
        LayerBound(b.name, *(getattr(b, f.name)[:-1] for f in dataclasses.fields(LayerBound)[1:]))
        for b in network.layers
    )
    return dataclasses.replace(network, times=np.asarray(times), lipschitz=bounds, product=products, layers=layers)


def observed_lipschitz(
    model: latent.ObservedCTFNO, params: Params, times: Float[Array, " time"], *, exact: bool = True
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


def singular_values(
    model: ctfno.CTFNO, params: Params, times: Float[Array, " time"]
) -> tuple[Float[np.ndarray, "time layer frequencies width"], Float[np.ndarray, "time layer width"]]:
    """Of R(t, xi) and of W(t) in every layer, as they act: after stabilisation, the largest first."""
    layers = model.apply(params, jnp.asarray(times, jnp.float32), method=model.time_factors)
    every = [[_layer_matrices(w, f, index) for w, f in layers] for index in range(len(times))]
    kernels, pointwise = (np.asarray([[pair[i] for pair in some] for some in every]) for i in (1, 0))
    return np.linalg.svd(kernels, compute_uv=False), np.linalg.svd(pointwise, compute_uv=False)


def _pointwise_stages(model: ctfno.CTFNO, params: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Stages before and after the Fourier layers."""
    # Coordinates follow the state in the lifting's input; they do not change with it.
    lifting = np.asarray(params["lifting"]["weight"], np.float64)
    num_state = lifting.shape[0] - (len(model.modes) if model.coordinates else 0)
    before: list[np.ndarray] = [lifting[None, :num_state]]
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
    """

    def gain(t: Array) -> Array:
        solve = lambda a: apply_fn(params, a[None], t[None])[0, 0]  # noqa: E731
        _, forward = jax.linearize(solve, u0)
        backward = jax.linear_transpose(forward, u0)

        def iterate(_: int, direction: Array) -> Array:
            (direction,) = backward(forward(direction))
            return direction / jnp.linalg.norm(direction)

        start = jax.random.normal(jax.random.key(seed), u0.shape, u0.dtype)
        direction = jax.lax.fori_loop(0, num_iterations, iterate, start / jnp.linalg.norm(start))
        return jnp.linalg.norm(forward(direction))

    return np.asarray(jax.lax.map(gain, jnp.asarray(times, jnp.float32)))
