"""The Task protocol: data, initial parameters, batches, a loss, an evaluation and a description."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from jaxtyping import Array, Float, Int

from ctfno_jax.types import Key, Params


class Task(Protocol):
    """A learning problem: data, model, loss and metrics.

    Attributes:
      metric: name of the validation metric that selects the best state; lower is better.
      arrays: training data on the host or a device, handed to ``sample``; :class:`Buckets` for several shapes.
    """

    metric: str
    arrays: Any

    def init(self, key: Key) -> Params:
        """Initial variables. The collection ``constants``, if there is one, is not trained."""
        ...

    def sample(self, arrays: Any, key: Key, step: Int[Array, ""], shard: Any, num_shards: int) -> Any:
        """One shard of the batch of a step: a pure function of (key, step), so that resuming is exact."""
        ...

    def loss(self, params: Params, batch: Any, key: Key) -> Float[Array, ""]:
        """Loss of one batch, a mean over its samples, so that shards can be averaged."""
        ...

    def evaluate(self, params: Params, split: str) -> dict[str, Any]:
        """Metrics on ``"validation"`` (cheap, during training) or ``"test"`` (all of them, at the end)."""
        ...

    def describe(self) -> dict[str, Any]:
        """JSON values from which :func:`ctfno_jax.load_predictor` rebuilds the run."""
        ...


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Training data in several shapes, such as series padded to a few lengths; each shape compiles once.

    Attributes:
      arrays: one tree of arrays per shape.
      order: index of the shape of each compiled call, repeated in a cycle; draw it in proportion to the samples.
    """

    arrays: Sequence[Any]
    order: Sequence[int]

    def at_call(self, call: int) -> Any:
        """The arrays of the compiled call of that number."""
        return self.arrays[self.order[call % len(self.order)]]
