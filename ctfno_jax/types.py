"""Axis words, array aliases and the interfaces that are passed around.

Axis words, the same in every file:

* ``batch``: independent samples;  ``time``: query times;
* ``x``, ``y``, ``*space``: grid axes, one to three, right end excluded;
* ``channels``: values per grid point;  ``width``: channels inside the network;
* ``*shape``: all axes of one image;  ``classes``: what a classifier tells apart;
* ``modes``: retained frequencies;  ``heads``: blocks of output channels that share a time factor.

Letters: ``u0`` initial state, ``u`` solution, ``v`` hidden field, ``v_hat`` its spectrum, ``t`` one time,
``times`` many.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

# A Flax variable collection: nested mappings with real arrays as leaves.
Params = Mapping[str, Any]

# Initial states, query times -> solution.
# The result is Any because Flax types it as such, with mutable collections in mind.
Apply = Callable[[Params, Float[Array, "batch *space channels"], Float[Array, "..."]], Any]

Key = PRNGKeyArray


class Complex(NamedTuple):
    """A complex array held as two real ones, so that no parameter or cotangent is ever complex."""

    re: Float[Array, "..."]
    im: Float[Array, "..."]


@runtime_checkable
class Objective(Protocol):
    """A loss: prediction and target of one batch to one number, a mean over samples."""

    def __call__(
        self,
        prediction: Float[Array, "batch time *space channels"],
        target: Float[Array, "batch time *space channels"],
    ) -> Float[Array, ""]: ...
