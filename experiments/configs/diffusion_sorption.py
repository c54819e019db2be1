"""diffusion_sorption: ``python -m experiments.pde --dataset=diffusion_sorption``; budget five minutes of one CPU core.

The domain has walls, so models read the coordinate, on a grid of their own (:mod:`ctfno_jax.transforms.resampling`).
``ctfno_odd`` knows the values at the walls instead: it sees the odd extension of a field
(:mod:`ctfno_jax.transforms.odd_extension`).
"""

CTFNO = {"network": "ctfno", "width": 64, "modes": [64], "depth": 2, "heads": 4, "time_width": 512,
    "time_features": 128, "time_scale": 0.1}  # fmt: skip

DEFAULT = {
    "ctfno": {
        **CTFNO, "coordinates": True, "padding": 0.125, "steps": 3900, "eval_every": 1300, "learning_rate": 3e-3,
        "transform": "resampling", "train_grid": 256, "times_per_step": 2, "own_times": True,
    },
    "ctfno_semigroup": {
        **CTFNO, "network": "ctfno_semigroup", "coordinates": True, "padding": 0.125, "rise_time": 10.0,
        "step_size": 100.0, "num_steps": 5, "steps": 1200, "eval_every": 600, "learning_rate": 3e-3,
        "transform": "resampling", "train_grid": 256, "shared_normalization": True, "window": 20,
        "times_per_step": 2, "random_starts": 0.9,
    },
    "ctfno_odd": {
        **CTFNO, "coordinates": False, "transform": "odd_extension", "train_grid": 128, "steps": 4500,
        "eval_every": 900, "learning_rate": 3e-3, "times_per_step": 2, "own_times": True,
    },
    "fno_rnn": {
        "network": "fno_rnn", "coordinates": True, "padding": 0.125, "residual": True, "num_times": 50,
        "time_step": 10.0, "steps": 700, "eval_every": 700, "learning_rate": 3e-3,
        "transform": "resampling", "train_grid": 256, "times_per_step": 0, "window": 4, "random_starts": 1.0,
        "shared_normalization": True,
    },
    "fno_2d": {
        "network": "fno_2d", "modes": [32, 16], "coordinates": True, "padding": 0.125, "time_padding": 0.12,
        "num_times": 50, "final_time": 500.0, "steps": 900, "eval_every": 300, "learning_rate": 6e-3,
        "transform": "resampling", "train_grid": 128, "batch_size": 8, "times_per_step": 0, "train_times": 50,
    },
    "deeponet": {
        "network": "deeponet", "periodic": False, "num_sensors": 128, "time_scale": 0.002, "steps": 8000,
        "eval_every": 2000, "learning_rate": 1e-3, "transform": "resampling", "train_grid": 128, "batch_size": 50,
        "times_per_step": 2,
    },
    "pod_deeponet": {
        "network": "pod_deeponet", "basis": "space_time", "num_modes": 5, "num_times": 50, "final_time": 500.0,
        "time_scale": 0.002, "steps": 24000, "eval_every": 4000, "learning_rate": 3e-3, "batch_size": 50,
        "times_per_step": 10,
    },
}  # fmt: skip

DATA = {"num_train": 100, "num_validation": 20, "num_test": 20, "data_options": {"num_points": 256}, "eval_every": 100}
SMALL = {**DATA, "width": 32, "modes": [32], "steps": 1000, "train_grid": 128, "time_width": 128, "time_features": 64}
QUICK = {
    "ctfno": SMALL,
    "ctfno_semigroup": {**SMALL, "steps": 500},
    "ctfno_odd": SMALL,
    "fno_rnn": {**DATA, "width": 16, "modes": [16], "head_width": 32, "steps": 200, "train_grid": 128},
    "fno_2d": {**DATA, "width": 16, "modes": [16, 8], "head_width": 32, "steps": 200, "train_grid": 128},
    "deeponet": {**DATA, "width": 64, "depth": 2, "steps": 1000},
    "pod_deeponet": {**DATA, "width": 64, "depth": 2, "num_modes": 5, "num_sensors": 256, "steps": 1000},
}

# 2000 epochs of batches of 20 on the relative L2 error at all times and points, as the released code does.
SCHEDULE = {
    "schedule": "step", "learning_rate": 1e-3, "decay_factor": 0.8, "decay_steps": 2000, "clip_norm": 0.0,
    "steps": 40000, "batch_size": 20, "times_per_step": 0, "loss": "relative_l2",
}  # fmt: skip
CONSTANT = {"schedule": "constant", "learning_rate": 1e-3, "clip_norm": 0.0, "times_per_step": 0}
PAPER = {
    "ctfno": {**CTFNO, **SCHEDULE, "coordinates": True, "padding": 1 / 64, "stability_bound": 10.0},
    "fno_rnn": {
        **SCHEDULE, "network": "fno_rnn", "coordinates": True, "num_times": 50, "time_step": 10.0,
        "shared_normalization": True,
    },
    "fno_2d": {**SCHEDULE, "network": "fno_2d", "coordinates": True, "num_times": 50, "final_time": 500.0},
    "deeponet": {**CONSTANT, "network": "deeponet", "periodic": False, "time_scale": 0.002, "steps": 160000,
        "batch_size": 50},
    "pod_deeponet": {
        **CONSTANT, "network": "pod_deeponet", "basis": "space_time", "num_modes": 7, "num_times": 50,
        "final_time": 500.0, "time_scale": 0.002, "steps": 160000, "batch_size": 50,
    },
}  # fmt: skip
