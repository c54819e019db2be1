"""mujoco: ``python -m experiments.timeseries --dataset=mujoco --task=interpolation --observed=0.1``.

``ctfno`` has the paper's latent state of 20 numbers and its encoder. ``ctfno_wide`` has 16 channels on the same grid
of 20 points and an encoder that attends to the observations; the answers of ``ctfno_wide_linear`` pass through the
observations. Budget: five minutes of one CPU core per cell.
"""

from typing import Any

LATENT = {"latent": 20, "task": "interpolation", "observed": 0.1}
OPERATOR = {
    "points": 20, "width": 32, "modes": [10], "depth": 3, "heads": 1, "time_width": 64, "time_features": 64,
    "time_scale": 100.0, "time_bias": False, "head": "mlp", "lifting": "low_pass", "padding": 0.1,
}  # fmt: skip
TRAINING = {
    "learning_rate": 4e-3, "batch_size": 50, "times_per_step": 4, "eval_every": 4000, "keep_checkpoints": 1,
    "loss": "squared_error",
}  # fmt: skip
# Steps of a fixed size suffice for these smooth latent states, and are an order of magnitude faster than adaptive ones.
ODE = {"latent": 15, "units": 300, "layers": 3, "solver": "heun", "stepping": "constant", "step_size": 0.05}

WIDE = {
    **LATENT, **OPERATOR, **TRAINING, "network": "latent_ctfno_attention", "latent": 320, "out_channels": 16,
    "steps": 32000, "own_times": True,
}  # fmt: skip

DEFAULT = {
    "ctfno": {**LATENT, **OPERATOR, **TRAINING, "network": "latent_ctfno", "steps": 44000, "own_times": True,
        "learning_rate": 8e-3},
    "ctfno_wide": WIDE,
    "ctfno_wide_linear": {**WIDE, "baseline": "linear"},
    "rnn_vae": {
        **LATENT, **TRAINING, "network": "rnn_vae", "latent": 15, "encoder_hidden": 30, "encoder_readout": 300,
        "decoder_units": 300, "times_per_step": 0, "steps": 24000,
    },
    "ode_rnn": {**TRAINING, "network": "ode_rnn", "task": "interpolation", "observed": 0.1,
        "own_times": True, "test_draws": 1, "eval_every": 2000, "steps": 14000},
    "latent_ode_rnn": {
        **LATENT, **TRAINING, **ODE, "network": "latent_ode_rnn", "encoder_hidden": 30, "times_per_step": 0,
        "eval_every": 2000, "steps": 13000,
    },
    "latent_ode": {**LATENT, **TRAINING, **ODE, "network": "latent_ode", "times_per_step": 0, "eval_every": 1000,
        "steps": 8000},
    "neural_flow": {**LATENT, **TRAINING, "network": "latent_flow", "own_times": True, "learning_rate": 8e-3,
        "steps": 50000},
}  # fmt: skip

# Steps where more is observed: an encoder then takes longer. They keep a cell near five minutes.
STEPS: dict[str, dict[float, int]] = {
    "ctfno": {0.2: 38000, 0.3: 32000, 0.5: 24000},
    "ctfno_wide": {0.2: 27000, 0.3: 24000, 0.5: 19000},
    "ctfno_wide_linear": {0.2: 27000, 0.3: 24000, 0.5: 19000},
    "rnn_vae": {0.5: 21000},
    "ode_rnn": {0.5: 3800},
    "latent_ode_rnn": {0.5: 12400},
    "latent_ode": {0.5: 3000},
    "neural_flow": {0.5: 11400},
}
# Rates with which a model is stable in the other task.
RATES = {("latent_ode", "prediction"): 2e-3}


def of(model: str, task: str, share: float) -> dict[str, Any]:
    """Overrides of one cell of the table: its steps and its rate, where they are not those of the model."""
    steps, rate = STEPS[model].get(share), RATES.get((model, task))
    return {
        **({} if steps is None else {"steps": steps}), **({} if rate is None else {"learning_rate": rate}),
    }  # fmt: skip


SMALL = {"steps": 500, "eval_every": 100, "data_options": {"num_sequences": 500}}
QUICK = {model: SMALL for model in DEFAULT}

# The published objective and schedule: 300 epochs of 160 batches, the rate falls by a thousandth at every step.
PUBLISHED = {
    "loss": "published_bound", "observation_std": 1e-3, "num_draws": 3, "times_per_step": 0, "batch_size": 50,
    "optimizer": "adamax", "learning_rate": 1e-2, "schedule": "exponential", "decay_factor": 0.999,
    "final_fraction": 0.1, "clip_norm": 0.0, "steps": 43200, "eval_every": 1000, "keep_checkpoints": 1,
}  # fmt: skip
PUBLISHED_ODE = {"latent": 15, "units": 300, "layers": 3}
PAPER = {
    "ctfno": {**LATENT, **OPERATOR, **PUBLISHED, "network": "latent_ctfno", "time_scale": 1000.0,
        "stability_bound": 10.0},
    "rnn_vae": {
        **LATENT, **PUBLISHED, "network": "rnn_vae", "latent": 15, "encoder_hidden": 30, "encoder_readout": 300,
        "decoder_units": 300, "num_draws": 1,
    },
    "latent_ode_rnn": {**LATENT, **PUBLISHED, **PUBLISHED_ODE, "network": "latent_ode_rnn", "encoder_hidden": 30},
    "latent_ode": {**LATENT, **PUBLISHED, **PUBLISHED_ODE, "network": "latent_ode"},
    "neural_flow": {
        **LATENT, **PUBLISHED, "network": "latent_flow", "optimizer": "adamw", "learning_rate": 1e-3,
        "schedule": "step", "decay_factor": 0.5, "decay_steps": 2880, "weight_decay": 1e-4, "clip_norm": 1.0,
        "num_draws": 1, "kl_wait": 0, "kl_rate": 0.0,
    },
}  # fmt: skip
