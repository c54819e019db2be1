"""activity: ``python -m experiments.timeseries --dataset=activity --data_dir=...``.

Positions of four tags on a person, and what the person does at every time. All points are observed; the answer is a
class for each time. Budget: five minutes of one CPU core per cell.
"""

LATENT = {"latent": 20, "num_classes": 11, "task": "classification", "observed": 1.0}
OPERATOR = {
    "points": 20, "width": 32, "modes": [10], "depth": 2, "heads": 1, "time_width": 64, "time_features": 64,
    "time_scale": 100.0, "time_bias": False, "head": "mlp", "lifting": "low_pass", "padding": 0.1,
}  # fmt: skip
TRAINING = {
    "learning_rate": 4e-3, "batch_size": 50, "times_per_step": 4, "eval_every": 500, "keep_checkpoints": 1,
    "loss": "cross_entropy",
}  # fmt: skip
ODE = {
    "latent": 15, "units": 500, "layers": 2, "solver": "heun", "stepping": "constant", "step_size": 0.05,
    "max_steps": 32,
}  # fmt: skip

DEFAULT = {
    "ctfno": {
        **LATENT, **OPERATOR, **TRAINING, "network": "latent_ctfno", "learning_rate": 8e-3, "eval_every": 1000,
        "steps": 20000,
    },
    "ctfno_wide": {
        **LATENT, **OPERATOR, **TRAINING, "network": "latent_ctfno_attention", "latent": 320, "out_channels": 16,
        "eval_every": 1000, "steps": 12000,
    },
    "rnn_vae": {
        **LATENT, **TRAINING, "network": "rnn_vae", "latent": 15, "encoder_hidden": 100, "encoder_readout": 500,
        "decoder_units": 500, "times_per_step": 0, "eval_every": 1000, "steps": 18000,
    },
    "ode_rnn": {
        **TRAINING, "network": "ode_rnn", "num_classes": 11, "task": "classification",
        "observed": 1.0, "hidden": 15, "units": 500, "depth": 4, "gate_units": 50, "test_draws": 1, "steps": 1500,
    },
    "latent_ode_rnn": {**LATENT, **TRAINING, **ODE, "network": "latent_ode_rnn", "encoder_hidden": 100, "steps": 3500},
    "latent_ode": {
        **LATENT, **TRAINING, **ODE, "network": "latent_ode", "encoder_hidden": 100, "encoder_units": 500,
        "encoder_depth": 4, "encoder_gate_units": 50, "steps": 1500,
    },
    "neural_flow": {
        **LATENT, **TRAINING, "network": "latent_flow", "width": 100, "depth": 3, "encoder_hidden": 30,
        "encoder_width": 100, "encoder_depth": 3, "learning_rate": 8e-3, "eval_every": 1000, "steps": 16000,
    },
}  # fmt: skip

QUICK = {model: {"steps": 300, "eval_every": 100} for model in DEFAULT}

PUBLISHED = {
    "loss": "cross_entropy", "num_draws": 3, "times_per_step": 0, "batch_size": 50, "optimizer": "adamax",
    "learning_rate": 1e-2, "schedule": "exponential", "decay_factor": 0.999, "final_fraction": 0.1, "clip_norm": 0.0,
    "steps": 19000, "eval_every": 1000, "keep_checkpoints": 1, "data_options": {"redrawn": True},
}  # fmt: skip
PUBLISHED_ODE = {"latent": 15, "units": 500, "layers": 2}
PAPER = {
    "ctfno": {**LATENT, **OPERATOR, **PUBLISHED, "network": "latent_ctfno", "time_scale": 1000.0,
        "stability_bound": 10.0},
    "latent_ode_rnn": {**LATENT, **PUBLISHED, **PUBLISHED_ODE, "network": "latent_ode_rnn", "encoder_hidden": 100},
    "latent_ode": {
        **LATENT, **PUBLISHED, **PUBLISHED_ODE, "network": "latent_ode", "encoder_hidden": 100, "encoder_units": 500,
        "encoder_depth": 4, "encoder_gate_units": 50,
    },
    "neural_flow": {
        **LATENT, **PUBLISHED, "network": "latent_flow", "width": 100, "depth": 3, "encoder_hidden": 30,
        "encoder_width": 100, "encoder_depth": 3, "num_draws": 1,
    },
}  # fmt: skip
