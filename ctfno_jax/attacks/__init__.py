"""Adversarial attacks on image classifiers, and the radius within which a Lipschitz constant rules them out.

An attack looks, around each image x with label y, for the point of

    { z :  || z - x || <= epsilon,  0 <= z <= 1 }

at which the cross-entropy of the label is largest. The classifier is any function of images to ``(batch, classes)``
logits, such as ``functools.partial(model.apply, params)`` of a Flax model. Attacks are pure functions that can be
jitted, epsilon included; outside jit, each call compiles anew. Values are checked where they are concrete, shapes and
types always.

The cross-entropy is ``softplus(s)`` with ``s = log sum_{j != y} exp(logit_j) - logit_y``. Attacks climb s: steps are
normalised, so they are the same in exact arithmetic, and s has a gradient where the cross-entropy of a confident model
underflows to zero, which would look like robustness.
"""

from ctfno_jax.attacks.auto_pgd import apgd
from ctfno_jax.attacks.certified import certified_accuracy, certified_radius
from ctfno_jax.attacks.noise import gaussian_noise
from ctfno_jax.attacks.problems import Logits
from ctfno_jax.attacks.projected_gradient import fgsm, pgd
from ctfno_jax.attacks.robustness import Attack, robust_accuracy, survivors

__all__ = [
    "Attack",
    "Logits",
    "apgd",
    "certified_accuracy",
    "certified_radius",
    "fgsm",
    "gaussian_noise",
    "pgd",
    "robust_accuracy",
    "survivors",
]
