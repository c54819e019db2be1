"""heat: ``python -m experiments.pde --dataset=heat``; budget five minutes of one CPU core per cell.

Every model sees the symmetries of the equation, x -> -x and u -> -u; models that are not equivariant to translations
also see random ones.
"""

CTFNO = {"network": "ctfno", "width": 64, "modes": [64], "depth": 2, "heads": 4, "time_width": 512,
    "time_features": 128, "time_scale": 20.0}  # fmt: skip
SYMMETRIES = {"sign_flips": True, "reflections": True}
ALL_SYMMETRIES = {"sign_flips": True, "reflections": True, "translations": True}
TRAINING = {
    **SYMMETRIES, "coordinates": False, "steps": 3600, "eval_every": 600, "learning_rate": 3e-3, "train_grid": 256,
    "times_per_step": 2, "own_times": True,
}  # fmt: skip
ABLATION = {
    "width": 64, "modes": [64], "depth": 2, **TRAINING, "steps": 5000, "eval_every": 1000,
}  # fmt: skip

DEFAULT = {
    "ctfno": {**CTFNO, **TRAINING},
    "ctfno_semigroup": {
        **CTFNO, **SYMMETRIES, "network": "ctfno_semigroup", "coordinates": False, "rise_time": 0.05,
        "step_size": 0.5, "num_steps": 5, "steps": 1700, "learning_rate": 1e-3, "train_grid": 256,
        "shared_normalization": True, "window": 20, "times_per_step": 2, "random_starts": 0.9,
    },
    "fno_rnn": {
        "network": "fno_rnn", **SYMMETRIES, "coordinates": False, "residual": True, "num_times": 50, "time_step": 0.05,
        "steps": 800, "eval_every": 400, "learning_rate": 1e-3, "train_grid": 256, "times_per_step": 0, "window": 4,
        "random_starts": 1.0, "shared_normalization": True,
    },
    "fno_2d": {
        "network": "fno_2d", **SYMMETRIES, "modes": [32, 16], "coordinates": False, "time_padding": 0.12,
        "num_times": 50, "final_time": 2.5, "steps": 900, "eval_every": 300, "learning_rate": 3e-3, "train_grid": 128,
        "batch_size": 8, "times_per_step": 0, "train_times": 50, "shared_normalization": True,
    },
    "deeponet": {
        "network": "deeponet", **ALL_SYMMETRIES, "periodic": True, "num_sensors": 128, "time_scale": 0.4,
        "steps": 12000, "eval_every": 3000, "learning_rate": 3e-3, "train_grid": 128, "batch_size": 50,
        "times_per_step": 2, "shared_normalization": True,
    },
    "pod_deeponet": {
        "network": "pod_deeponet", **ALL_SYMMETRIES, "basis": "snapshots", "num_modes": 64, "time_scale": 0.4,
        "steps": 12000, "learning_rate": 1e-3, "batch_size": 50, "times_per_step": 10, "shared_normalization": True,
    },
    "ablation_input": {**ABLATION, "network": "ablation_input", "time_scale": 0.4, "learning_rate": 6e-3},
    "ablation_lifted": {**ABLATION, "network": "ablation_lifted", "time_features": 128, "time_channels": 64,
        "time_scale": 20.0},
    "ablation_features": {**ABLATION, "network": "ablation_features", "time_features": 128, "time_channels": 64,
        "time_scale": 20.0},
    "neural_flow": {
        "network": "neural_flow", **ALL_SYMMETRIES, "steps": 1500, "eval_every": 500, "learning_rate": 3e-3,
        "transform": "resampling", "train_grid": 128, "times_per_step": 5, "shared_normalization": True,
    },
    "neural_laplace": {
        "network": "neural_laplace", **ALL_SYMMETRIES, "latent": 128, "encoder_width": 128, "width": 128,
        "time_scale": 20.0, "steps": 2600, "eval_every": 1300, "learning_rate": 1e-3, "transform": "resampling",
        "train_grid": 128, "times_per_step": 5, "shared_normalization": True,
    },
}  # fmt: skip

SMALL = {"width": 32, "modes": [32], "steps": 1000, "train_grid": 128, "eval_every": 100}
COARSE = {"eval_every": 100, "data_options": {"num_points": 256}}
QUICK = {
    "ctfno": {**SMALL, "time_width": 128, "time_features": 64},
    "ctfno_semigroup": {**SMALL, "time_width": 128, "time_features": 64, "steps": 500},
    "fno_rnn": {"width": 16, "modes": [16], "head_width": 32, "steps": 200, "train_grid": 128, "eval_every": 100},
    "fno_2d": {"width": 16, "modes": [16, 8], "head_width": 32, "steps": 200, "train_grid": 128, "eval_every": 100},
    "deeponet": {**COARSE, "width": 64, "depth": 2, "steps": 1000},
    "pod_deeponet": {**COARSE, "width": 64, "depth": 2, "num_modes": 32, "num_sensors": 256, "steps": 1000},
    "ablation_input": SMALL,
    "ablation_lifted": {**SMALL, "time_channels": 32},
    "ablation_features": {**SMALL, "time_channels": 32},
    "neural_flow": {**COARSE, "num_layers": 4, "width": 32, "steps": 300},
    "neural_laplace": {**COARSE, "latent": 16, "encoder_width": 16, "steps": 300},
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
        **SCHEDULE, "network": "fno_rnn", "coordinates": True, "num_times": 50, "time_step": 0.05,
        "shared_normalization": True,
    },
    "fno_2d": {**SCHEDULE, "network": "fno_2d", "coordinates": True, "num_times": 50, "final_time": 2.5},
    "deeponet": {**CONSTANT, "network": "deeponet", "periodic": True, "time_scale": 0.4, "steps": 160000,
        "batch_size": 50},
    "pod_deeponet": {
        **CONSTANT, "network": "pod_deeponet", "basis": "snapshots", "num_modes": 64, "time_scale": 0.4,
        "steps": 160000, "batch_size": 50,
    },
    "ablation_input": {**SCHEDULE, "network": "ablation_input", "coordinates": True, "time_scale": 0.4},
    "ablation_lifted": {**SCHEDULE, "network": "ablation_lifted", "coordinates": True, "time_scale": 20.0},
    "ablation_features": {**SCHEDULE, "network": "ablation_features", "coordinates": True, "time_scale": 20.0},
    "neural_flow": {
        "network": "neural_flow", "schedule": "step", "learning_rate": 1e-3, "decay_factor": 0.8, "decay_steps": 600,
        "clip_norm": 0.0, "steps": 6000, "steps_per_call": 3, "eval_every": 60, "batch_size": 120, "times_per_step": 0,
        "shared_normalization": True,
    },
    "neural_laplace": {
        **CONSTANT, "network": "neural_laplace", "steps": 3000, "steps_per_call": 3, "eval_every": 60,
        "batch_size": 120,
    },
}  # fmt: skip
