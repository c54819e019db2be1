"""spiral: ``python -m experiments.synthetic --dataset=spiral``; budget five minutes of one CPU core per cell."""

from experiments.configs import dynamics

DEFAULT = {
    "ctfno": {**dynamics.CTFNO, **dynamics.TRAINING, "learning_rate": 1e-2, "out_features": 2, "steps": 17000,
        "times_per_step": 8},
    "node": {**dynamics.NODE, **dynamics.TRAINING, "learning_rate": 1e-2, "out_features": 2, "steps": 9000,
        "times_per_step": 0},
    # At 2e-2, ahead in its trial, a whole run is unstable after 1,500 steps.
    "anode": {**dynamics.ANODE, **dynamics.TRAINING, "learning_rate": 1e-2, "out_features": 2, "steps": 9000,
        "times_per_step": 0},
    "neural_flow": {**dynamics.NEURAL_FLOW, **dynamics.TRAINING, "learning_rate": 2e-2, "out_features": 2,
        "steps": 4000, "times_per_step": 25},
    "neural_laplace": {**dynamics.NEURAL_LAPLACE, **dynamics.TRAINING, "learning_rate": 2e-3, "out_features": 2,
        "steps": 5000, "times_per_step": 25},
}  # fmt: skip

QUICK = {model: dynamics.QUICK for model in DEFAULT}

PAPER = {
    "ctfno": {**dynamics.CTFNO, **dynamics.PUBLISHED, "out_features": 2, "steps": 6000},
    "node": {**dynamics.PUBLISHED_NODE, "out_features": 2, "steps": 6000},
    "anode": {**dynamics.PUBLISHED_NODE, "augmented": 1, "out_features": 2, "steps": 6000},
    "neural_flow": {**dynamics.PUBLISHED, "network": "series_neural_flow", "out_features": 2, "loss": "elbo",
        "steps": 6000},
    "neural_laplace": {**dynamics.NEURAL_LAPLACE, **dynamics.PUBLISHED, "out_features": 2, "steps": 6000},
}  # fmt: skip
