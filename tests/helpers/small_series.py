"""Runs on short series of a size for tests, one for every model."""

from ctfno_jax import config as config_lib

# The cheapest solver to compile, in a form that can be cut over devices.
EULER = {"solver": "euler", "stepping": "constant", "step_size": 0.5, "adjoint": "direct", "max_steps": 16}
FIELDS = {
    "ctfno": {
        "grid_points": 6, "width": 4, "modes": [3], "depth": 1, "heads": 1, "time_width": 4, "time_features": 4,
    },
    "node": {"width": 5, "depth": 1, **EULER},
    "anode": {"width": 5, "depth": 1, "augmented": 2, **EULER},
    "neural_flow": {"hidden": 5, "readout": 6, "width": 4, "depth": 1, "time_step": 0.5},
    "neural_laplace": {"encoder_width": 4, "width": 6, "depth": 1, "num_terms": 5},
}  # fmt: skip


def config(model: str, *, dataset: str = "sine", seed: int = 0, **changes) -> config_lib.ExperimentConfig:
    """Four steps on series of twelve points, seven of them observed; with changes of single settings."""
    data = config_lib.DatasetConfig(
        dataset=dataset, num_train=20, num_validation=4, num_test=5,
        data_options={"num_points": 12, "num_observed": 7, "final_time": 6.0},
    )  # fmt: skip
    features = {"out_features": 2 if dataset in ("stiff", "spiral") else 1}
    train = config_lib.TrainConfig(
        steps=4, batch_size=8, times_per_step=3, train_grid=0, steps_per_call=1, eval_every=2, keep_checkpoints=2
    )
    settings = config_lib.ExperimentConfig(
        experiment="synthetic", preset="quick", seed=seed, dataset=data,
        model=config_lib.ModelConfig(model, {**FIELDS[model], **features}), train=train,
    )  # fmt: skip
    return config_lib.replace_fields(settings, changes)
