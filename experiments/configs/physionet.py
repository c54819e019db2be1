"""physionet: ``python -m experiments.timeseries --dataset=physionet --task=interpolation --data_dir=...``.

Values of 41 clinical measurements of 8,000 patients over 48 hours, of which a seventh are observed. Every model sees
all observed points; series are padded to a few lengths. The loss is the published error, a mean over features.
Budget: five minutes of one CPU core per cell.
"""

from typing import Any

LATENT = {"latent": 20, "task": "interpolation", "observed": 1.0}
OPERATOR = {
    "points": 20, "width": 32, "modes": [10], "depth": 1, "heads": 1, "time_width": 64, "time_features": 16,
    "time_scale": 100.0, "time_bias": False, "head": "mlp", "lifting": "low_pass", "padding": 0.1,
}  # fmt: skip
TRAINING = {
    "learning_rate": 8e-3, "batch_size": 50, "times_per_step": 16, "lengths": [64, 96, 128], "eval_every": 1000,
    "keep_checkpoints": 1, "loss": "squared_error_per_feature",
}  # fmt: skip
ODE = {"units": 50, "layers": 3, "solver": "heun", "stepping": "constant", "step_size": 0.05, "max_steps": 32}

DEFAULT = {
    "ctfno": {**LATENT, **OPERATOR, **TRAINING, "network": "latent_ctfno", "encoder_hidden": 40, "steps": 15000},
    "ctfno_wide": {
        **LATENT, **OPERATOR, **TRAINING, "network": "latent_ctfno_attention", "latent": 320, "out_channels": 16,
        "depth": 2, "learning_rate": 4e-3, "steps": 7000,
    },
    "rnn_vae": {
        **LATENT, **TRAINING, "network": "rnn_vae", "encoder_hidden": 40, "encoder_readout": 50, "decoder_units": 50,
        "learning_rate": 4e-3, "times_per_step": 0, "steps": 24000,
    },
    "ode_rnn": {
        **TRAINING, "network": "ode_rnn", "task": "interpolation", "observed": 1.0, "hidden": 20,
        "units": 50, "gate_units": 50, "test_draws": 1, "steps": 9000,
    },
    "latent_ode_rnn": {**LATENT, **TRAINING, **ODE, "network": "latent_ode_rnn", "encoder_hidden": 40, "steps": 20000},
    "latent_ode": {
        **LATENT, **TRAINING, **ODE, "network": "latent_ode", "encoder_hidden": 40, "encoder_units": 50,
        "encoder_gate_units": 50, "steps": 9000,
    },
    "neural_flow": {
        **LATENT, **TRAINING, "network": "latent_flow", "width": 50, "depth": 3, "encoder_hidden": 40,
        "encoder_width": 50, "encoder_depth": 3, "steps": 9000,
    },
}  # fmt: skip

# Rates with which a model is stable in the other task.
RATES = {("latent_ode_rnn", "interpolation"): 4e-3}


def of(model: str, task: str) -> dict[str, Any]:
    """Overrides of one cell of the table: its rate, where it is not that of the model."""
    rate = RATES.get((model, task))
    return {} if rate is None else {"learning_rate": rate}


QUICK = {model: {"steps": 300, "eval_every": 100} for model in DEFAULT}

# The published objective and schedule: the rate falls by a thousandth at every step.
PUBLISHED = {
    "loss": "published_bound", "observation_std": 1e-2, "num_draws": 3, "times_per_step": 0, "batch_size": 50,
    "lengths": [64, 96, 128], "optimizer": "adamax", "learning_rate": 1e-2, "schedule": "exponential",
    "decay_factor": 0.999, "final_fraction": 0.1, "clip_norm": 0.0, "steps": 23000, "eval_every": 1000,
    "keep_checkpoints": 1,
}  # fmt: skip
PUBLISHED_ODE = {"units": 50, "layers": 3}
PAPER = {
    "ctfno": {**LATENT, **OPERATOR, **PUBLISHED, "network": "latent_ctfno", "encoder_hidden": 40,
        "time_scale": 1000.0},
    "rnn_vae": {
        **LATENT, **PUBLISHED, "network": "rnn_vae", "encoder_hidden": 40, "encoder_readout": 50, "decoder_units": 50,
        "num_draws": 1,
    },
    "latent_ode_rnn": {**LATENT, **PUBLISHED, **PUBLISHED_ODE, "network": "latent_ode_rnn", "encoder_hidden": 40},
    "latent_ode": {
        **LATENT, **PUBLISHED, **PUBLISHED_ODE, "network": "latent_ode", "encoder_hidden": 40, "encoder_units": 50,
        "encoder_gate_units": 50,
    },
    "neural_flow": {
        **LATENT, **PUBLISHED, "network": "latent_flow", "width": 50, "depth": 3, "encoder_hidden": 40,
        "encoder_width": 50, "encoder_depth": 3, "optimizer": "adamw", "learning_rate": 1e-3, "schedule": "step",
        "decay_factor": 0.5, "decay_steps": 2300, "weight_decay": 1e-4, "clip_norm": 1.0, "num_draws": 1,
        "kl_wait": 0, "kl_rate": 0.0,
    },
}  # fmt: skip
