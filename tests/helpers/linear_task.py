"""Linear regression as a task: the smallest one that a training can be run on.

As a program, ``python -m helpers.linear_task WORKDIR [--resume]`` trains it into a folder.
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ctfno_jax.config import ConfigError, OptimizerConfig, TrainConfig
from ctfno_jax.training.task import Buckets

BATCH = 8
OPTIMIZER = OptimizerConfig(optimizer="adam", learning_rate=0.05, schedule="constant", average_decay=0.5)
TRAIN = TrainConfig(steps=12, steps_per_call=2, eval_every=4)


class Arrays(NamedTuple):
    x: Any
    y: Any


class LinearTask:
    """``y = x w + b`` with noise; the loss of a batch is its mean squared error.

    Attributes:
      noise: scale of random numbers that the loss adds to its targets, for losses that use their key.
      evaluations: parameters that were evaluated so far, in order.
    """

    metric = "validation_mse"

    def __init__(self, *, lengths=(5,), noise=0.0, size=3) -> None:
        rng = np.random.default_rng(0)
        weights = np.arange(1.0, size + 1)
        every = []
        for length in lengths:
            x = rng.normal(size=(24, length, size)).astype(np.float32)
            every.append(Arrays(jnp.asarray(x), jnp.asarray(x @ weights + 0.5, jnp.float32)))
        self.arrays: Any = every[0] if len(every) == 1 else Buckets(every, order=(0, 1, 1))
        x = rng.normal(size=(7, 4, size)).astype(np.float32)
        self.validation = Arrays(x, (x @ weights + 0.5).astype(np.float32))
        self.noise, self.size, self.evaluations = noise, size, []

    def init(self, key):
        return {"params": {"w": jax.random.normal(key, (self.size,)), "b": jnp.zeros(())}}

    def sample(self, arrays, key, step, shard, num_shards):
        if BATCH % num_shards:
            raise ConfigError(f"batch_size={BATCH} cannot be divided among {num_shards} devices")
        index = jax.random.choice(jax.random.fold_in(key, step), len(arrays.x), (BATCH,), replace=False)
        mine = jax.lax.dynamic_slice_in_dim(index, shard * (BATCH // num_shards), BATCH // num_shards)
        return Arrays(arrays.x[mine], arrays.y[mine])

    def loss(self, params, batch, key):
        error = batch.x @ params["params"]["w"] + params["params"]["b"] - batch.y
        if self.noise:
            error = error + self.noise * jax.random.normal(key, error.shape)
        return jnp.mean(jnp.square(error))

    def evaluate(self, params, split):
        assert split == "validation"
        p = jax.tree.map(np.asarray, params["params"])
        self.evaluations.append(p)
        return {self.metric: float(np.mean(np.square(self.validation.x @ p["w"] + p["b"] - self.validation.y)))}

    def describe(self):
        return {"task": "linear"}


if __name__ == "__main__":
    from experiments import program

    def main() -> None:
        import time

        from ctfno_jax.training import run
        from ctfno_jax.training.workdir import Workdir

        class Slow(LinearTask):
            """Time for a signal between the calls; a network of a size that fills a small disk."""

            def evaluate(self, params, split):
                time.sleep(pause)
                return super().evaluate(params, split)

        size, pause = int(arguments.get("size", 3)), float(arguments.get("pause", 0))
        with Workdir(arguments["workdir"], {"task": "linear"}, resume="resume" in arguments) as folder:
            (trained,) = run.train(Slow(size=size), optimizer=OPTIMIZER, config=TRAIN, workdirs=[folder])
        print("best", trained.best_step, trained.metrics)

    arguments = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    del sys.argv[1:]
    program.run(main, __doc__ or "")
