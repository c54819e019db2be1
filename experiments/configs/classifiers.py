"""Settings of the image classifiers, shared by the tables of mnist and cifar10.

Noise and attacks are in grey levels of 255, as in the paper's columns.
"""

from typing import Any

TRAINING = {
    "batch_size": 256, "images_per_pass": 16, "steps_per_call": 50, "eval_every": 500, "keep_checkpoints": 1,
    "clip_norm": 10.0,
}  # fmt: skip
FNO = {"network": "fno_classifier", "modes": [6, 6], "depth": 3}
ADAMW = {"optimizer": "adamw", "weight_decay": 1e-4, "learning_rate": 1e-3}
CONSTANT = {"schedule": "constant", "batch_size": 256, "clip_norm": 10.0, "eval_every": 1000, "keep_checkpoints": 1}


def default(
    tests: dict[str, Any], fno: dict[str, Any], cnn: dict[str, Any], anode: dict[str, Any], weight_decay: float
) -> dict[str, Any]:
    """The cells of the default preset.

    Args:
      tests: noises, attacks and radii of the evaluation.
      fno: fields of the Fourier classifier.
      cnn: fields of the CNN.
      anode: fields of the augmented Neural ODE.
      weight_decay: of ``fno_weight_decay``.
    """
    fourier = {**FNO, **fno, **tests, **TRAINING, "learning_rate": 5e-3, "steps": 5000}
    bound = {"stability_bound": 1.2}
    return {
        "fno": fourier,
        "fno_weight_decay": {**fourier, "optimizer": "adamw", "weight_decay": weight_decay},
        "fno_stabilized": {**fourier, **bound, "resolutions": True},
        "fno_certified": {**fourier, **bound, "margin_radius": tests["certified_radius"]},
        "cnn": {"network": "cnn", **cnn, **tests, **TRAINING, **ADAMW, "steps": 3000},
        # Steps of a fixed size cost the same for every batch.
        "anode": {"network": "image_anode", **anode, **tests, **TRAINING, **ADAMW, "solver": "heun",
            "stepping": "constant", "step_size": 0.25, "steps": 2000},
    }  # fmt: skip


def paper(
    tests: dict[str, Any], fno: dict[str, Any], cnn: dict[str, Any], anode: dict[str, Any], weight_decay: float,
    steps: tuple[int, int, int],
) -> dict[str, Any]:  # fmt: skip
    """The cells of the paper's preset; ``steps`` of the Fourier classifiers, the CNN and the ANODE."""
    fourier = {**FNO, **fno, **tests, **CONSTANT, "learning_rate": 5e-3, "steps": steps[0]}
    return {
        "fno": fourier,
        "fno_weight_decay": {**fourier, "optimizer": "adamw", "weight_decay": weight_decay},
        "fno_stabilized": {**fourier, "stability_bound": 1.2, "resolutions": True},
        "cnn": {"network": "cnn", **cnn, **tests, **CONSTANT, **ADAMW, "steps": steps[1]},
        "anode": {"network": "image_anode", **anode, **tests, **CONSTANT, **ADAMW, "atol": 1e-3, "steps": steps[2],
            "steps_per_call": 50, "eval_every": 500},
    }  # fmt: skip
