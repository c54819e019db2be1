"""burgers: ``python -m experiments.pde --dataset=burgers``; budget eight minutes of one CPU core per cell.

Every model sees the reflection of the equation; models that are not equivariant to translations also see random ones.
"""

CTFNO = {"network": "ctfno", "width": 64, "modes": [64], "depth": 2, "heads": 4, "time_width": 512,
    "time_features": 128, "time_scale": 50.0}  # fmt: skip
# Deeper and narrower than the paper's, with as many parameters.
DEEP = {"width": 48, "depth": 6}
# The validation set has 200 times: evaluations are few, as each costs more than a hundred steps.
TRAINING = {
    "coordinates": False, "steps": 2400, "eval_every": 1200, "learning_rate": 2e-3, "train_grid": 256,
    "times_per_step": 2, "own_times": True, "reflections": True, "shared_normalization": True,
}  # fmt: skip
ABLATION = {**DEEP, **TRAINING, "modes": [64], "steps": 3200, "eval_every": 1600, "learning_rate": 4e-3}

DEFAULT = {
    "ctfno": {**CTFNO, **DEEP, **TRAINING, "time_width": 256},
    "ctfno_semigroup": {
        **CTFNO, **DEEP, "network": "ctfno_semigroup", "time_width": 256, "coordinates": False, "rise_time": 0.005,
        "step_size": 0.05, "num_steps": 20, "steps": 600, "eval_every": 600, "learning_rate": 2e-3, "clip_norm": 0.01,
        "train_grid": 256, "batch_size": 50, "times_per_step": 2, "window": 20, "random_starts": 0.9,
        "reflections": True, "shared_normalization": True,
    },
    "fno_rnn": {
        "network": "fno_rnn", "coordinates": False, "residual": True, "num_times": 200, "time_step": 0.005,
        "steps": 1200, "eval_every": 1200, "learning_rate": 3e-3, "train_grid": 256, "times_per_step": 0, "window": 4,
        "random_starts": 1.0, "reflections": True, "shared_normalization": True,
    },
    "fno_2d": {
        "network": "fno_2d", "modes": [32, 16], "coordinates": False, "time_padding": 0.12, "num_times": 200,
        "final_time": 1.0, "steps": 1400, "eval_every": 700, "learning_rate": 6e-3, "train_grid": 128, "batch_size": 8,
        "times_per_step": 0, "train_times": 50, "reflections": True, "shared_normalization": True,
    },
    "deeponet": {
        "network": "deeponet", "periodic": True, "num_sensors": 256, "time_scale": 1.0, "steps": 5800,
        "eval_every": 2900, "learning_rate": 1e-3, "train_grid": 256, "batch_size": 50, "times_per_step": 2,
        "reflections": True, "translations": True, "shared_normalization": True,
    },
    "pod_deeponet": {
        "network": "pod_deeponet", "basis": "snapshots", "num_modes": 64, "time_scale": 1.0, "steps": 21000,
        "eval_every": 7000, "learning_rate": 1e-3, "batch_size": 50, "times_per_step": 10, "reflections": True,
        "translations": True, "shared_normalization": True,
    },
    "ablation_input": {**ABLATION, "network": "ablation_input", "time_scale": 1.0},
    "ablation_lifted": {**ABLATION, "network": "ablation_lifted", "time_features": 128, "time_channels": 48,
        "time_scale": 50.0},
    "ablation_features": {**ABLATION, "network": "ablation_features", "time_features": 128, "time_channels": 48,
        "time_scale": 50.0},
}  # fmt: skip

# Few trajectories on a coarse grid: they have to be solved for first.
DATA = {"num_train": 100, "num_validation": 20, "num_test": 20, "data_options": {"num_points": 256}, "eval_every": 100}
SMALL = {**DATA, "width": 32, "modes": [32], "depth": 2, "steps": 1000, "train_grid": 128}
QUICK = {
    "ctfno": {**SMALL, "time_width": 128, "time_features": 64},
    "ctfno_semigroup": {**SMALL, "time_width": 128, "time_features": 64, "steps": 500},
    "fno_rnn": {**DATA, "width": 16, "modes": [16], "head_width": 32, "steps": 200, "train_grid": 128},
    "fno_2d": {**DATA, "width": 16, "modes": [16, 8], "head_width": 32, "steps": 200, "train_grid": 128},
    "deeponet": {**DATA, "width": 64, "depth": 2, "num_sensors": 256, "steps": 1000},
    "pod_deeponet": {**DATA, "width": 64, "depth": 2, "num_modes": 32, "num_sensors": 256, "steps": 1000},
    "ablation_input": SMALL,
    "ablation_lifted": {**SMALL, "time_channels": 32},
    "ablation_features": {**SMALL, "time_channels": 32},
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
        **SCHEDULE, "network": "fno_rnn", "coordinates": True, "num_times": 200, "time_step": 0.005,
        "shared_normalization": True,
    },
    "fno_2d": {**SCHEDULE, "network": "fno_2d", "coordinates": True, "num_times": 200, "final_time": 1.0},
    "deeponet": {**CONSTANT, "network": "deeponet", "periodic": True, "time_scale": 1.0, "steps": 160000,
        "batch_size": 50},
    "pod_deeponet": {
        **CONSTANT, "network": "pod_deeponet", "basis": "snapshots", "num_modes": 64, "time_scale": 1.0,
        "steps": 160000, "batch_size": 50,
    },
    "ablation_input": {**SCHEDULE, "network": "ablation_input", "coordinates": True, "time_scale": 1.0},
    "ablation_lifted": {**SCHEDULE, "network": "ablation_lifted", "coordinates": True, "time_scale": 50.0},
    "ablation_features": {**SCHEDULE, "network": "ablation_features", "coordinates": True, "time_scale": 50.0},
}  # fmt: skip
