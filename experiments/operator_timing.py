"""Forward and backward passes of CTFNO on random fields, against other forms of the same function."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.types import Params
from experiments import obvious
from experiments.stopwatch import best_seconds

SIZES = ((20, 10, 256), (20, 5, 256), (20, 50, 1024))


def matmul_rate(repeats: int) -> float:
    """Float32 operations per second of a 2048-cube matrix product."""
    a = jax.random.normal(jax.random.key(0), (2048, 2048))
    return 2 * 2048**3 / best_seconds(jax.jit(jnp.matmul), a, a, repeats=repeats)


def operations(model: CTFNO, batch: int, num_times: int, num_points: int) -> tuple[float, float]:
    """Operations in the matrix products of a forward pass, and of a forward and backward pass.

    A backward pass does each product once more for the field and, where there is a weight, once more for the weight;
    the transforms have none.
    """
    (modes,) = model.modes
    pairs = batch * num_times
    transform = 2 * num_points * 2 * modes * model.width
    mixing = 2 * 4 * modes * model.width**2
    pointwise = 2 * num_points * model.width**2
    head = 2 * num_points * model.width * model.out_channels
    # The first layer's transform and mixing are done once per sample, on the few input channels: not counted.
    transforms = pairs * transform * (2 * model.depth - 1)
    weighted = pairs * ((model.depth - 1) * (mixing + pointwise) + head)
    return transforms + weighted, 2 * transforms + 3 * weighted


def time_model(apply_fn: Callable[..., Any], args: tuple[Any, ...], repeats: int) -> dict[str, float]:
    """Seconds of a forward pass, and of a forward and backward pass with respect to the parameters."""
    backward = jax.grad(lambda p, u0, t: jnp.mean(jnp.square(apply_fn(p, u0, t))))
    passes = {"forward": apply_fn, "forward_backward": backward}
    return {name: best_seconds(jax.jit(fn), *args, repeats=repeats) for name, fn in passes.items()}


def random_request(model: CTFNO, batch: int, num_times: int, num_points: int) -> tuple[Params, Any, Any]:
    """Initial parameters, random fields and query times."""
    u0 = jax.random.normal(jax.random.key(1), (batch, num_points, 1))
    times = jnp.linspace(0.05, 2.5, num_times)
    return model.init(jax.random.key(0), u0[:1], times[:1]), u0, times


def compare(batch: int, num_times: int, num_points: int, repeats: int) -> dict[str, Any]:
    """Times of the three forms at one size."""
    model = CTFNO(coordinates=False, time_scale=20.0)
    request = random_request(model, batch, num_times, num_points)
    forms = {
        "ours": model.apply,
        "rfft": model.clone(fourier_method="fft").apply,
        "obvious": functools.partial(obvious.apply, model),
    }
    # Before and after: the better rate is closer to that of the undisturbed machine.
    rate = matmul_rate(repeats)
    seconds = {name: time_model(fn, request, repeats) for name, fn in forms.items()}
    rate = max(rate, matmul_rate(repeats))
    counts = zip(seconds["ours"].items(), operations(model, batch, num_times, num_points), strict=True)
    return {
        "size": [batch, num_times, num_points],
        "seconds": seconds,
        "matmul_gflops": rate / 1e9,
        "fraction_of_matmul": {name: count / value / rate for (name, value), count in counts},
    }


def growth(repeats: int) -> dict[str, list[tuple[int, float]]]:
    """Seconds of a forward and backward pass as times, points or width grow, the others fixed."""

    def seconds(num_times: int = 8, num_points: int = 256, width: int = 64) -> float:
        model = CTFNO(width=width, coordinates=False, time_scale=20.0)
        return time_model(model.apply, random_request(model, 8, num_times, num_points), repeats)["forward_backward"]

    return {
        "times": [(n, seconds(num_times=n)) for n in (1, 4, 16, 64)],
        "points": [(n, seconds(num_points=n)) for n in (128, 256, 512, 1024)],
        "width": [(n, seconds(width=n)) for n in (32, 64, 128)],
    }


def measure(repeats: int, *, quick: bool = False) -> dict[str, Any]:
    """All numbers; the smallest size only if ``quick``."""
    sizes = [
        compare(*size, repeats=repeats if size[-1] < 1024 else max(2, repeats // 4))
        for size in SIZES[: 1 if quick else None]
    ]
    return {"sizes": sizes, "growth": {} if quick else growth(repeats)}


def notes(made: dict[str, Any]) -> str:
    """Arithmetic rates and growth as text."""
    lines = []
    for result in made["sizes"]:
        size, fraction = " x ".join(map(str, result["size"])), result["fraction_of_matmul"]
        lines.append(
            f"{size}: CTFNO runs at {fraction['forward']:.0%} forward and {fraction['forward_backward']:.0%} forward "
            f"and backward of the rate of a matrix product, {result['matmul_gflops']:.0f} GFLOP/s"
        )
    for name, values in made["growth"].items():
        first = values[0][1]
        lines.append(f"{name}: " + ", ".join(f"{n}: {1e3 * s:.1f} ms (x {s / first:.1f})" for n, s in values))
    return "\n".join(lines)
