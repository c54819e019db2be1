"""Runs on a heat problem of a size for tests, one for every model; ``ctfno_in_steps`` is CTFNO with a horizon."""

from ctfno_jax import config as config_lib

# The cheapest solver to compile, in a form that can be cut over devices.
EULER = {"solver": "euler", "stepping": "constant", "step_size": 0.5, "adjoint": "direct", "max_steps": 16}
FOURIER = {"width": 4, "modes": [4], "depth": 1}
SINUSOIDS = {"time_features": 4, "time_channels": 3, "time_scale": 20.0}
BRANCHES = {"width": 6, "depth": 1, "num_sensors": 32}
FIELDS = {
    "ctfno": {**FOURIER, "heads": 2, "time_width": 4, "time_features": 4, "time_scale": 20.0, "coordinates": False},
    "ctfno_in_steps": {
        **FOURIER,
        "heads": 2,
        "time_width": 4,
        "time_features": 4,
        "coordinates": False,
        "start": "state",
        "rise_time": 0.1,
        "horizon": 1.0,
        "max_steps": 3,
    },
    "fno_rnn": {**FOURIER, "head_width": 5, "time_step": 0.5, "num_times": 5},
    "fno_2d": {**FOURIER, "modes": [4, 3], "head_width": 5, "final_time": 2.5, "num_times": 5},
    "deeponet": BRANCHES,
    "pod_deeponet": {**BRANCHES, "num_modes": 7},
    "node": {"width": 5, "depth": 1, **EULER},
    "anode": {"width": 5, "depth": 1, "augmented": 3, **EULER},
    "neural_flow": {"num_layers": 2, "width": 5, "depth": 1, "num_sinusoids": 3},
    "neural_laplace": {"latent": 3, "encoder_width": 4, "width": 5, "depth": 1, "num_terms": 5},
    "ablation_input": FOURIER,
    "ablation_lifted": {**FOURIER, **SINUSOIDS},
    "ablation_features": {**FOURIER, **SINUSOIDS},
}
OVERRIDES = {
    "ctfno_in_steps": {"window": 2, "times_per_step": 0, "random_starts": 0.5, "shared_normalization": True},
    "fno_rnn": {"window": 3, "times_per_step": 0, "shared_normalization": True},
    "fno_2d": {"times_per_step": 0, "reflections": True},
    "deeponet": {"translations": True, "sign_flips": True},
    # What is not learned must come through weight decay and averaging too.
    "pod_deeponet": {"frame": "aligned", "average_decay": 0.9, "optimizer": "adamw", "weight_decay": 0.1},
    "node": {"shared_normalization": True, "times_per_step": 0},
    "neural_flow": {"shared_normalization": True, "translations": True},
    "ablation_features": {"shared_normalization": True, "random_starts": 0.5},
}


def name_of(kind: str) -> str:
    """Name of the model that a kind of run trains."""
    return kind.removesuffix("_in_steps")


def config(model: str, **changes) -> config_lib.ExperimentConfig:
    """Four steps; with changes of single settings."""
    dataset = config_lib.DatasetConfig(
        dataset="heat", num_train=20, num_validation=4, num_test=4, data_options={"num_points": 32, "num_times": 5}
    )
    train = config_lib.TrainConfig(
        steps=4, batch_size=8, times_per_step=2, train_grid=0, steps_per_call=1, eval_every=2, keep_checkpoints=3
    )
    settings = config_lib.ExperimentConfig(
        preset="quick", dataset=dataset, model=config_lib.ModelConfig(name_of(model), FIELDS[model]), train=train
    )
    return config_lib.replace_fields(settings, {**OVERRIDES.get(model, {}), **changes})
