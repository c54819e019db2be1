"""Partly observed series of a size for tests, and latent tasks on them."""

from typing import Any

import numpy as np

from ctfno_jax.data.masked_series import MaskedDataset, Observations, Part, Rows, subsample
from ctfno_jax.models import registry
from ctfno_jax.tasks.latent import LatentSettings, LatentTask

NETWORKS: dict[str, dict[str, Any]] = {
    "latent_ctfno": {
        "latent": 6, "points": 6, "width": 4, "modes": [3], "depth": 1, "heads": 1, "time_width": 4, "time_features": 4,
        "encoder_hidden": 4, "encoder_readout": 3,
    },
    "latent_ctfno_attention": {
        "latent": 12, "points": 6, "out_channels": 2, "width": 4, "modes": [3], "depth": 1, "heads": 1,
        "time_width": 4, "time_features": 4, "encoder_num_queries": 6, "encoder_width": 8, "encoder_heads": 2,
        "encoder_time_features": 4,
    },
    "latent_ode_rnn": {
        "latent": 3, "units": 4, "layers": 1, "solver": "euler", "stepping": "constant", "step_size": 0.25,
        "encoder_hidden": 4, "encoder_readout": 3,
    },
    "latent_ode": {
        "latent": 3, "units": 4, "layers": 1, "solver": "euler", "stepping": "constant", "step_size": 0.25,
        "encoder_hidden": 3, "encoder_units": 4, "encoder_depth": 1, "encoder_gate_units": 3, "encoder_readout": 3,
    },
    "latent_flow": {
        "latent": 3, "width": 4, "depth": 1, "encoder_hidden": 3, "encoder_width": 4, "encoder_depth": 1,
        "encoder_readout": 3,
    },
    "rnn_vae": {"latent": 3, "encoder_hidden": 4, "encoder_readout": 3, "decoder_units": 4},
    "ode_rnn": {"hidden": 3, "units": 4, "depth": 1, "gate_units": 3},
}  # fmt: skip


def regular(count: int, *, steps: int = 8, observed: int = 3, seed: int = 0, whole: bool = False) -> Part:
    """Sines and cosines with random phases at shared times; all points are asked for, some observed."""
    rng = np.random.default_rng(seed)
    times = np.tile(np.linspace(0, 1, steps, dtype=np.float32), (count, 1))
    phase = rng.uniform(0, 2 * np.pi, (count, 1))
    values = np.stack([np.sin(4 * times + phase), np.cos(4 * times + phase)], axis=-1).astype(np.float32)
    target = Observations(times, values, np.ones_like(values))
    return Part(target if whole else subsample(target, observed, rng), target, None)


def irregular(count: int, *, most: int = 9, seed: int = 0, num_classes: int = 0) -> Part:
    """Series of two to ``most`` points at times of their own, about half of the values missing."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, most + 1, count)
    lengths[0] = most
    rows = int(lengths.sum())
    times = np.concatenate([np.sort(rng.uniform(0, 1, n)) for n in lengths])
    mask = rng.random((rows, 2)) < 0.5
    mask[np.arange(rows), rng.integers(0, 2, rows)] = True
    some = Rows(lengths, times, rng.normal(size=(rows, 2)), mask).padded()
    labels = None
    if num_classes:
        labels = np.where(some.valid, rng.integers(0, num_classes, some.valid.shape), -1).astype(np.int32)
    return Part(some, some, labels)


def dataset(kind: str = "regular", **changes: Any) -> MaskedDataset:
    """Sixteen training series; of the regular ones training draws three points at every step."""
    if kind == "regular":
        parts = [regular(16, whole=True), regular(5, seed=1), regular(4, seed=2)]
    else:
        classes = 3 if kind == "classes" else 0
        parts = [irregular(count, seed=i, num_classes=classes) for i, count in enumerate((16, 5, 4))]
    fields: dict[str, Any] = {
        "name": "waves", "task": "classification" if kind == "classes" else "interpolation", "train": parts[0],
        "validation": parts[1], "test": parts[2], "features": ("x", "y"), "offset": (1.0, -2.0), "scale": (2.0, 0.5),
        "time_unit": 48.0, "time_name": "h", "subsample": 3 if kind == "regular" else 0,
        "num_classes": 3 if kind == "classes" else 0, "info": {"series": 25.0}, "source": "made by hand",
    }  # fmt: skip
    return MaskedDataset(**{**fields, **changes})


def task(name: str = "latent_ctfno", kind: str = "regular", *, data: MaskedDataset | None = None, **settings: Any):
    """The task of the small network of that name."""
    data = data or dataset(kind)
    classes = {"num_classes": data.num_classes} if data.num_classes else {}
    model = registry.build_model(name, out_features=2, **NETWORKS[name], **classes)
    chosen: dict[str, Any] = {"task": data.task, "batch_size": 8, **settings}
    if data.num_classes:
        chosen["loss"] = "cross_entropy"
    if name == "ode_rnn":
        chosen["test_draws"] = 1
    return LatentTask(data, model, LatentSettings(**chosen))
