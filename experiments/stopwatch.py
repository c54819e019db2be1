"""Time of a compiled function: the least of several calls after warm-up."""

import time
from collections.abc import Callable
from typing import Any

import jax


def best_seconds(fn: Callable[..., Any], *args: Any, repeats: int, warm_up: int = 2) -> float:
    """Least wall time of several calls after warm-up."""
    for _ in range(warm_up):
        jax.block_until_ready(fn(*args))
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        best = min(best, time.perf_counter() - start)
    return best
