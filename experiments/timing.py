"""Times the operator in one run, as ratios: ``python -m experiments.timing``.

Every number is the least of several repetitions after warm-up. Compared are, on the same parameters and inputs:

* ours: the model as it is;
* rfft: the model with its FFT form;
* obvious: u0 repeated over all query times, complex einsum, FFT (``experiments/obvious.py``);

and the arithmetic of ours as a fraction of the rate of a 2048-cube float32 matrix product on this machine. Only matrix
products are counted: a backward pass does each of them once more for the field and, where there is a weight (not for
the transforms), once more for the weight.

``--heat_output=FILE`` instead times training and inference of FNO-RNN, FNO-2D and CTFNO on heat, as the paper does;
``--dynamics_output=FILE`` those of the models of dynamics on the spiral, from trained runs in ``--runs``.
"""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags

from ctfno_jax.data import batching
from ctfno_jax.models.ctfno import CTFNO, num_parameters
from ctfno_jax.models.registry import build_model
from ctfno_jax.training import objectives, optimizers
from ctfno_jax.training import step as step_lib
from experiments import common, dynamics_timing, files, obvious, tables
from experiments.configs import pde

FLAGS = flags.FLAGS

HEAT_MODELS = ("ctfno", "fno_rnn", "fno_2d")
SIZES = ((20, 10, 256), (20, 5, 256), (20, 50, 1024))


def best_seconds(fn: Callable[..., Any], *args: Any, repeats: int, warm_up: int = 2) -> float:
    """Least wall time of several calls after some for warm-up."""
    for _ in range(warm_up):
        jax.block_until_ready(fn(*args))
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        best = min(best, time.perf_counter() - start)
    return best


def matmul_rate(repeats: int) -> float:
    """Float32 operations per second of a 2048-cube matrix product."""
    a = jax.random.normal(jax.random.key(0), (2048, 2048))
    return 2 * 2048**3 / best_seconds(jax.jit(jnp.matmul), a, a, repeats=repeats)


def operations(model: CTFNO, batch: int, num_times: int, num_points: int) -> tuple[float, float]:
    """Operations in the matrix products of a forward pass, and of a forward and backward pass."""
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


def time_model(apply_fn: Callable[..., Any], args: tuple[Any, ...], repeats: int) -> tuple[float, float]:
    """Seconds of a forward pass, and of a forward and backward pass with respect to the parameters."""
    forward = jax.jit(apply_fn)
    backward = jax.jit(jax.grad(lambda p, u0, t: jnp.mean(jnp.square(apply_fn(p, u0, t)))))
    return best_seconds(forward, *args, repeats=repeats), best_seconds(backward, *args, repeats=repeats)


def half_precision(repeats: int) -> dict[str, float]:
    """What bfloat16 inputs of the pointwise products save, and the relative error they make, at the small size."""
    batch, num_times, num_points = SIZES[0]
    model = CTFNO(coordinates=False, time_scale=20.0)
    u0 = jax.random.normal(jax.random.key(1), (batch, num_points, 1))
    times = jnp.linspace(0.05, 2.5, num_times)
    params = model.init(jax.random.key(0), u0[:1], times[:1])
    half = model.clone(pointwise_dtype="bfloat16")
    full_u, half_u = (jnp.asarray(m.apply(params, u0, times)) for m in (model, half))
    seconds = {name: time_model(m.apply, (params, u0, times), repeats)[1] for name, m in (("f", model), ("h", half))}
    return {
        "speedup": seconds["f"] / seconds["h"],
        "relative_error": float(jnp.linalg.norm(half_u - full_u) / jnp.linalg.norm(full_u)),
    }


def compare(batch: int, num_times: int, num_points: int, repeats: int) -> dict[str, Any]:
    """Times of ours, rfft and obvious at one size."""
    model = CTFNO(coordinates=False, time_scale=20.0)
    u0 = jax.random.normal(jax.random.key(1), (batch, num_points, 1))
    times = jnp.linspace(0.05, 2.5, num_times)
    params = model.init(jax.random.key(0), u0[:1], times[:1])
    forms = {
        "ours": model.apply,
        "rfft": model.clone(fourier_method="fft").apply,
        "obvious": lambda p, a, t: obvious.apply(model, p, a, t),
    }
    # The rate is taken before and after: the better one is closer to what the machine can do undisturbed.
    rate = matmul_rate(repeats)
    seconds = {name: time_model(fn, (params, u0, times), repeats) for name, fn in forms.items()}
    rate = max(rate, matmul_rate(repeats))
    return {
        "size": [batch, num_times, num_points],
        "seconds": {name: {"forward": f, "forward_backward": b} for name, (f, b) in seconds.items()},
        "matmul_gflops": rate / 1e9,
        "fraction_of_matmul": {
            part: count / value / rate
            for part, count, value in zip(
                ("forward", "forward_backward"), operations(model, batch, num_times, num_points), seconds["ours"],
                strict=True,
            )
        },
    }  # fmt: skip


def report(result: dict[str, Any]) -> str:
    """One size as a table."""
    batch, num_times, num_points = result["size"]
    lines = [
        f"\n{batch} samples x {num_times} times x {num_points} points",
        f"{'':<10}{'forward':>12}{'ratio':>8}{'fwd + bwd':>12}{'ratio':>8}",
    ]
    ours = result["seconds"]["ours"]
    for name, value in result["seconds"].items():
        f, b = value["forward"], value["forward_backward"]
        lines.append(
            f"{name:<10}{1e3 * f:>9.1f} ms{f / ours['forward']:>8.2f}"
            f"{1e3 * b:>9.1f} ms{b / ours['forward_backward']:>8.2f}"
        )
    fraction = result["fraction_of_matmul"]
    lines.append(
        f"ours runs at {fraction['forward']:.0%} forward and {fraction['forward_backward']:.0%} forward and backward "
        f"of a 2048-cube product ({result['matmul_gflops']:.0f} GF/s)"
    )
    return "\n".join(lines)


def growth(repeats: int) -> dict[str, list[tuple[int, float]]]:
    """Seconds of a forward and backward pass as times, points and width grow, others fixed."""

    def seconds(num_times: int = 8, num_points: int = 256, width: int = 64) -> float:
        model = CTFNO(width=width, coordinates=False, time_scale=20.0)
        u0 = jax.random.normal(jax.random.key(1), (8, num_points, 1))
        times = jnp.linspace(0.05, 2.5, num_times)
        params = model.init(jax.random.key(0), u0[:1], times[:1])
        return time_model(model.apply, (params, u0, times), repeats)[1]

    return {
        "times": [(n, seconds(num_times=n)) for n in (1, 4, 16, 64)],
        "points": [(n, seconds(num_points=n)) for n in (128, 256, 512, 1024)],
        "width": [(n, seconds(width=n)) for n in (32, 64, 128)],
    }


def heat_epoch(repeats: int, *, num_train: int = 400, num_test: int = 100, num_points: int = 1024) -> dict[str, Any]:
    """Seconds of a training epoch and of predicting the test set on heat, by the models and sizes of the paper.

    Batches of 20 trajectories at all 50 times on all points: one step is timed and counted as often as an epoch has it.
    """
    batch, num_times = 20, 50
    u0 = jax.random.normal(jax.random.key(1), (batch, num_points, 1))
    times = jnp.arange(1, num_times + 1) * (2.5 / num_times)
    target = jnp.zeros((batch, num_times, num_points, 1))
    numbers: dict[str, Any] = {}
    for name in HEAT_MODELS:
        config = pde.pde_config("heat", name, "paper", 0)
        fields = {**config.model.model_fields, **({"remat": True} if name == "fno_rnn" else {})}
        model = build_model(name, **fields)
        params = jax.jit(model.init)(jax.random.key(0), u0[:1], times[:1])
        optimizer = optimizers.optimizer(config.optimizer, config.train.steps)
        state = step_lib.create_state(params, optimizer, jax.random.key(2))
        loss = step_lib.make_loss(model.apply, objectives.objective(config.train.loss))
        step = jax.jit(functools.partial(step_lib.train_step, loss_fn=loss, optimizer=optimizer))
        batch_arrays = batching.Batch(u0, times, target)
        numbers[name] = {
            "training": num_train // batch * best_seconds(step, state, batch_arrays, repeats=repeats, warm_up=1),
            "inference": num_test // batch * best_seconds(jax.jit(model.apply), params, u0, times, repeats=repeats),
            "num_params": num_parameters(params["params"]),
        }
        print(f"{name}: {numbers[name]['training']:.1f} s training, {numbers[name]['inference']:.1f} s inference")
    return {
        "experiment": "timing", "dataset": "heat", "size": [num_train, num_times, num_points], "batch_size": batch,
        "num_test": num_test, "models": numbers, "device": _device(),
    }  # fmt: skip


def _device() -> str:
    device = jax.devices()[0]
    return f"{device.platform}:{device.device_kind}"


def main() -> None:
    repeats = FLAGS.repeats
    if FLAGS.heat_output:
        row = heat_epoch(max(1, repeats // 6))
        files.write_json(FLAGS.heat_output, row)
        print(tables.timing_table(Path(FLAGS.heat_output), "text"))
        return
    if FLAGS.dynamics_output:
        row = {**dynamics_timing.measure(Path(FLAGS.runs), best_seconds, repeats), "device": _device()}
        files.write_json(FLAGS.dynamics_output, row)
        print(tables.dynamics_timing_table(Path(FLAGS.dynamics_output), "text"))
        return
    results = []
    for size in SIZES[: 1 if FLAGS.quick else None]:
        results.append(compare(*size, repeats=repeats if size[-1] < 1024 else max(2, repeats // 4)))
        print(report(results[-1]), flush=True)
    half = half_precision(repeats)
    print(
        f"\nbfloat16 pointwise products: {half['speedup']:.2f}x as fast forward and backward, "
        f"relative error {half['relative_error']:.1e}"
    )
    rows = {} if FLAGS.quick else growth(repeats)
    if rows:
        print("\ngrowth of a forward and backward pass (8 samples x 8 times x 256 points x width 64 but for one)")
        for name, values in rows.items():
            first = values[0][1]
            print(f"{name:<8}" + "   ".join(f"{n}: {1e3 * s:.1f} ms (x{s / first:.1f})" for n, s in values))
    if FLAGS.output:
        files.write_json(
            FLAGS.output,
            {
                "experiment": "timing",
                "device": _device(),
                "sizes": results,
                "bfloat16": half,
                "growth": rows,
            },
        )


if __name__ == "__main__":
    flags.DEFINE_integer("repeats", 12, "repetitions of which the least counts", lower_bound=1)
    flags.DEFINE_boolean("quick", False, "the small size only")
    flags.DEFINE_string("output", None, "also write the numbers to this .json file")
    flags.DEFINE_string(
        "heat_output", None, "instead time an epoch of FNO-RNN, FNO-2D and CTFNO on heat, into this file"
    )
    flags.DEFINE_string("dynamics_output", None, "instead time the models of dynamics on the spiral, into this file")
    flags.DEFINE_string("runs", "runs", "folder with trained runs, for --dynamics_output")
    common.run_program(main)
