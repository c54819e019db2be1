"""navier_stokes: ``python -m experiments.pde --dataset=navier_stokes``; budget fifteen minutes of one core.

Three channels, each normalised by its own standard deviation. Every model sees the reflection of the equations; models
that are not equivariant to translations also see random ones.
"""

CTFNO = {"network": "ctfno", "out_channels": 3, "width": 64, "modes": [64], "depth": 2, "heads": 4,
    "time_width": 512, "time_features": 128, "time_scale": 50.0}  # fmt: skip
ABLATION = {
    "out_channels": 3, "width": 64, "modes": [48], "depth": 4, "coordinates": False, "steps": 6000,
    "eval_every": 1000, "learning_rate": 2e-3, "train_grid": 256, "times_per_step": 2, "own_times": True,
    "reflections": True,
}  # fmt: skip

DEFAULT = {
    "ctfno": {
        **CTFNO, "modes": [48], "depth": 4, "time_width": 256, "coordinates": False, "steps": 7800,
        "eval_every": 1300, "optimizer": "adamw", "weight_decay": 1e-4, "learning_rate": 2e-3, "train_grid": 256,
        "times_per_step": 2, "own_times": True, "reflections": True,
    },
    "ctfno_semigroup": {
        **CTFNO, "network": "ctfno_semigroup", "modes": [48], "depth": 4, "time_width": 256, "coordinates": False,
        "rise_time": 0.004, "step_size": 0.04, "num_steps": 25, "steps": 3400, "eval_every": 1700,
        "learning_rate": 2e-3, "train_grid": 256, "shared_normalization": True, "window": 4, "times_per_step": 2,
        "random_starts": 0.9, "reflections": True,
    },
    "fno_rnn": {
        "network": "fno_rnn", "out_channels": 3, "coordinates": False, "residual": True, "num_times": 50,
        "time_step": 0.02, "steps": 3000, "eval_every": 1500, "learning_rate": 3e-3, "train_grid": 256,
        "times_per_step": 0, "window": 4,
        "random_starts": 1.0, "reflections": True, "shared_normalization": True,
    },
    "fno_2d": {
        "network": "fno_2d", "out_channels": 3, "modes": [32, 16], "coordinates": False, "time_padding": 0.12,
        "num_times": 50, "final_time": 1.0, "steps": 3400, "eval_every": 800, "learning_rate": 6e-3,
        "train_grid": 128, "batch_size": 8, "times_per_step": 0, "train_times": 50, "reflections": True,
    },
    "deeponet": {
        "network": "deeponet", "out_channels": 3, "periodic": True, "num_sensors": 128, "time_scale": 1.0,
        "steps": 36000, "eval_every": 6000, "learning_rate": 1e-3, "train_grid": 128, "batch_size": 50,
        "times_per_step": 2, "reflections": True, "translations": True,
    },
    "pod_deeponet": {
        "network": "pod_deeponet", "out_channels": 3, "basis": "snapshots", "num_modes": 64, "time_scale": 1.0,
        "steps": 30000, "eval_every": 5000, "learning_rate": 3e-3, "batch_size": 50, "times_per_step": 10,
        "reflections": True, "translations": True,
    },
    "ablation_input": {**ABLATION, "network": "ablation_input", "time_scale": 1.0},
    "ablation_lifted": {**ABLATION, "network": "ablation_lifted", "time_features": 128, "time_channels": 64,
        "time_scale": 50.0},
    "ablation_features": {**ABLATION, "network": "ablation_features", "time_features": 128, "time_channels": 64,
        "time_scale": 50.0},
}  # fmt: skip

DATA = {"num_train": 100, "num_validation": 20, "num_test": 20, "data_options": {"num_points": 256}, "eval_every": 100}
SMALL = {**DATA, "width": 32, "modes": [32], "steps": 1000, "train_grid": 128}
QUICK = {
    "ctfno": {**SMALL, "time_width": 128, "time_features": 64},
    "ctfno_semigroup": {**SMALL, "time_width": 128, "time_features": 64, "steps": 500},
    "fno_rnn": {**DATA, "width": 16, "modes": [16], "head_width": 32, "steps": 200, "train_grid": 128},
    "fno_2d": {**DATA, "width": 16, "modes": [16, 8], "head_width": 32, "steps": 200, "train_grid": 128},
    "deeponet": {**DATA, "width": 64, "depth": 2, "steps": 1000},
    "pod_deeponet": {**DATA, "width": 64, "depth": 2, "num_modes": 32, "num_sensors": 256, "steps": 1000},
    "ablation_input": SMALL,
    "ablation_lifted": {**SMALL, "time_channels": 32},
    "ablation_features": {**SMALL, "time_channels": 32},
}

# 2000 epochs of batches of 20 on the relative L2 error at all times and points, as the released code does.
SCHEDULE = {
    "schedule": "step", "learning_rate": 1e-3, "decay_factor": 0.8, "decay_steps": 3500, "clip_norm": 0.0,
    "steps": 70000, "batch_size": 20, "times_per_step": 0, "loss": "relative_l2",
}  # fmt: skip
CONSTANT = {"schedule": "constant", "learning_rate": 1e-3, "clip_norm": 0.0, "times_per_step": 0}
PAPER = {
    "ctfno": {**CTFNO, **SCHEDULE, "coordinates": True, "padding": 1 / 64, "stability_bound": 10.0},
    "fno_rnn": {
        **SCHEDULE, "network": "fno_rnn", "out_channels": 3, "coordinates": True, "num_times": 50, "time_step": 0.02,
        "shared_normalization": True,
    },
    "fno_2d": {**SCHEDULE, "network": "fno_2d", "out_channels": 3, "coordinates": True, "num_times": 50,
        "final_time": 1.0},
    "deeponet": {
        **CONSTANT, "network": "deeponet", "out_channels": 3, "periodic": True, "time_scale": 1.0, "steps": 280000,
        "batch_size": 50,
    },
    "pod_deeponet": {
        **CONSTANT, "network": "pod_deeponet", "out_channels": 3, "basis": "snapshots", "num_modes": 64,
        "time_scale": 1.0, "steps": 280000, "batch_size": 50,
    },
    "ablation_input": {**SCHEDULE, "network": "ablation_input", "out_channels": 3, "coordinates": True,
        "time_scale": 1.0},
    "ablation_lifted": {**SCHEDULE, "network": "ablation_lifted", "out_channels": 3, "coordinates": True,
        "time_scale": 50.0},
    "ablation_features": {**SCHEDULE, "network": "ablation_features", "out_channels": 3, "coordinates": True,
        "time_scale": 50.0},
}  # fmt: skip
