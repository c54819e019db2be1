"""reaction: ``python -m experiments.synthetic --dataset=reaction``; budget five minutes of one CPU core per cell.

The initial fields contain a decaying exponential, so translations and reflections are no symmetries of the data.
"""

CTFNO = {"network": "ctfno", "width": 64, "modes": [32], "depth": 2, "heads": 4, "time_width": 512,
    "time_features": 128, "time_scale": 50.0}  # fmt: skip
NODE = {
    "network": "neural_ode", "width": 256, "solver": "heun", "stepping": "constant", "step_size": 0.1, "steps": 8000,
    "learning_rate": 1e-3, "clip_norm": 0.1, "batch_size": 50, "times_per_step": 0, "shared_normalization": True,
    "eval_every": 400,
}  # fmt: skip

DEFAULT = {
    "ctfno": {**CTFNO, "coordinates": False, "steps": 6000, "learning_rate": 1e-3, "times_per_step": 5},
    "node": {**NODE, "augmented": 0},
    "anode": {**NODE, "augmented": 100, "steps": 5600},
    "neural_flow": {
        "network": "neural_flow", "steps": 1500, "eval_every": 500, "learning_rate": 3e-3, "times_per_step": 5,
        "shared_normalization": True,
    },
    "neural_laplace": {
        "network": "neural_laplace", "time_scale": 50.0, "steps": 3400, "learning_rate": 1e-3, "times_per_step": 5,
    },
    "fno_2d": {
        "network": "fno_2d", "modes": [32, 16], "coordinates": False, "time_padding": 0.12, "num_times": 50,
        "final_time": 1.0, "steps": 1400, "eval_every": 200, "learning_rate": 1e-2, "batch_size": 8,
        "times_per_step": 0, "train_times": 50,
    },
}  # fmt: skip

QUICK = {
    "ctfno": {"width": 32, "time_width": 128, "time_features": 64, "steps": 1000, "eval_every": 100},
    "node": {"width": 64, "depth": 2, "steps": 200},
    "anode": {"width": 64, "depth": 2, "augmented": 10, "steps": 200},
    "neural_flow": {"num_layers": 4, "width": 32, "steps": 300, "eval_every": 100},
    "neural_laplace": {"latent": 16, "encoder_width": 16, "steps": 300, "eval_every": 100},
    "fno_2d": {"width": 16, "modes": [16, 8], "head_width": 32, "steps": 200, "eval_every": 100},
}

SCHEDULE = {
    "schedule": "step", "learning_rate": 1e-3, "decay_factor": 0.8, "decay_steps": 2000, "clip_norm": 0.0,
    "steps": 40000, "batch_size": 20, "times_per_step": 0, "loss": "relative_l2",
}  # fmt: skip
CONSTANT = {"schedule": "constant", "clip_norm": 0.0, "steps_per_call": 3, "eval_every": 60, "batch_size": 120,
    "times_per_step": 0}  # fmt: skip
PAPER = {
    "ctfno": {**CTFNO, **SCHEDULE, "coordinates": True, "padding": 1 / 64, "stability_bound": 10.0},
    "node": {**CONSTANT, "network": "neural_ode", "learning_rate": 1e-5, "steps": 6000, "shared_normalization": True},
    "anode": {
        **CONSTANT, "network": "neural_ode", "augmented": 100, "learning_rate": 1e-5, "steps": 6000,
        "shared_normalization": True,
    },
    "neural_flow": {
        "network": "neural_flow", "schedule": "step", "learning_rate": 1e-3, "decay_factor": 0.8, "decay_steps": 600,
        "clip_norm": 0.0, "steps": 6000, "steps_per_call": 3, "eval_every": 60, "batch_size": 120, "times_per_step": 0,
        "shared_normalization": True,
    },
    "neural_laplace": {**CONSTANT, "network": "neural_laplace", "learning_rate": 1e-3, "steps": 3000},
    "fno_2d": {
        **SCHEDULE, "network": "fno_2d", "modes": [32, 16], "coordinates": True, "num_times": 50, "final_time": 1.0,
    },
}  # fmt: skip
