"""mnist: ``python -m experiments.images --dataset=mnist --data_dir=...``; budget 25 minutes of one CPU core per cell.

Noise and attacks are in grey levels of 255, as in the paper's columns.
"""

TESTS = {"noises": [50.0, 100.0], "epsilons": [30.0, 50.0], "certified_radius": 0.3}
FNO = {"network": "fno_classifier", "width": 32, "modes": [6, 6], "depth": 3, "num_blocks": 8, "padding": 3 / 28}
TRAINING = {"batch_size": 256, "steps_per_call": 50, "eval_every": 500, "keep_checkpoints": 1, "clip_norm": 10.0}

DEFAULT = {
    "fno": {**FNO, **TESTS, **TRAINING, "learning_rate": 5e-3, "steps": 5000},
    "fno_weight_decay": {
        **FNO, **TESTS, **TRAINING, "optimizer": "adamw", "weight_decay": 1e-6, "learning_rate": 5e-3, "steps": 5000,
    },
    "fno_stabilized": {
        **FNO, **TESTS, **TRAINING, "stability_bound": 1.2, "resolutions": True, "learning_rate": 5e-3, "steps": 5000,
    },
    "fno_certified": {
        **FNO, **TESTS, **TRAINING, "stability_bound": 1.2, "margin_radius": 0.3, "learning_rate": 5e-3, "steps": 5000,
    },
    "cnn": {
        **TESTS, **TRAINING, "network": "cnn", "width": 32, "kernels": [7, 7, 3, 3, 3], "optimizer": "adamw",
        "weight_decay": 1e-4, "learning_rate": 1e-3, "steps": 3000,
    },
    # Steps of a fixed size cost the same for every batch.
    "anode": {
        **TESTS, **TRAINING, "network": "image_anode", "width": 64, "augmented": 5, "solver": "heun",
        "stepping": "constant", "step_size": 0.25, "optimizer": "adamw", "weight_decay": 1e-4, "learning_rate": 1e-3,
        "steps": 2000,
    },
}  # fmt: skip

QUICK = {model: {"steps": 100, "eval_every": 50, "attacked_images": 200} for model in DEFAULT}

# A hundred epochs of 234 batches for the Fourier classifiers, thirty for the CNN, twenty for the ANODE.
CONSTANT = {"schedule": "constant", "batch_size": 256, "clip_norm": 10.0, "eval_every": 1000, "keep_checkpoints": 1}
PAPER = {
    "fno": {**FNO, **TESTS, **CONSTANT, "learning_rate": 5e-3, "steps": 23400},
    "fno_weight_decay": {
        **FNO, **TESTS, **CONSTANT, "optimizer": "adamw", "weight_decay": 1e-6, "learning_rate": 5e-3, "steps": 23400,
    },
    "fno_stabilized": {
        **FNO, **TESTS, **CONSTANT, "stability_bound": 1.2, "resolutions": True, "learning_rate": 5e-3, "steps": 23400,
    },
    "cnn": {
        **TESTS, **CONSTANT, "network": "cnn", "width": 32, "kernels": [7, 7, 3, 3, 3], "optimizer": "adamw",
        "weight_decay": 1e-4, "learning_rate": 1e-3, "steps": 7000,
    },
    "anode": {
        **TESTS, **CONSTANT, "network": "image_anode", "width": 64, "augmented": 5, "atol": 1e-3,
        "optimizer": "adamw", "weight_decay": 1e-4, "learning_rate": 1e-3, "steps": 4700, "steps_per_call": 50,
        "eval_every": 500,
    },
}  # fmt: skip
