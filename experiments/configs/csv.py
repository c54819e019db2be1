"""csv: ``python -m experiments.timeseries --dataset=csv --input=mine.csv``, for series of your own.

The smaller of the two models is for a few hundred series, ``ctfno_wide`` for more.
"""

OPERATOR = {
    "points": 20, "width": 32, "modes": [10], "depth": 2, "heads": 1, "time_width": 64, "time_features": 64,
    "time_scale": 100.0, "time_bias": False, "head": "mlp", "lifting": "low_pass", "padding": 0.1,
}  # fmt: skip
TRAINING = {
    "task": "interpolation", "observed": 0.5, "learning_rate": 2e-3, "batch_size": 8, "times_per_step": 8,
    "eval_every": 500, "loss": "squared_error",
}  # fmt: skip

DEFAULT = {
    "ctfno": {**OPERATOR, **TRAINING, "network": "latent_ctfno", "latent": 20, "steps": 5000},
    "ctfno_wide": {
        **OPERATOR, **TRAINING, "network": "latent_ctfno_attention", "latent": 320, "out_channels": 16, "steps": 5000,
    },
}  # fmt: skip

QUICK = {model: {"steps": 300, "eval_every": 100} for model in DEFAULT}

# The paper has no data of yours.
PAPER: dict[str, dict[str, object]] = {}
