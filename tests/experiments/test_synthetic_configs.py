"""Settings of the dynamics suite: every cell builds, fits its data and has the published size."""

import jax
import jax.numpy as jnp
import pytest

from ctfno_jax import predict
from ctfno_jax.models.ctfno import num_parameters
from experiments import series_run
from experiments.configs import synthetic as presets

SERIES_CELLS = [(d, m) for d in presets.SERIES for m in presets.MODELS]
SIZES = {"ctfno": 17_858, "node": 17_025, "anode": 17_282, "neural_flow": 18_565, "neural_laplace": 17_194}


def _num_parameters(config, features):
    model = predict.model_of(config)
    shape = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 100, features)), jnp.ones(2))
    return num_parameters(shape["params"])


@pytest.mark.parametrize(("dataset", "model"), SERIES_CELLS)
@pytest.mark.parametrize("preset", ["quick", "default", "paper"])
def test_every_series_cell_is_obeyed(dataset, model, preset):
    config = presets.synthetic_config(dataset, model, preset, 2)
    series_run.check_settings(config)
    assert (config.experiment, config.preset, config.seed) == ("synthetic", preset, 2)
    assert (config.dataset.dataset, config.model.model) == (dataset, model)


@pytest.mark.parametrize("model", presets.MODELS)
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_models_have_their_published_sizes_on_scalar_series(model, preset):
    # The default flow has more latent coordinates: two of them cannot turn.
    expected = 20_947 if (model, preset) == ("neural_flow", "default") else SIZES[model]
    assert _num_parameters(presets.synthetic_config("square", model, preset, 0), 1) == expected


def test_ctfno_of_two_components_is_a_little_larger():
    assert _num_parameters(presets.synthetic_config("spiral", "ctfno", "default", 0), 2) == 17_891


def test_the_paper_preset_keeps_the_published_handicaps():
    node = presets.synthetic_config("square", "node", "paper", 0)
    assert node.model.model_fields["late_start"] is True
    assert (node.model.model_fields["solver"], node.model.model_fields["stepping"]) == ("euler", "queries")
    assert presets.synthetic_config("square", "neural_flow", "paper", 0).train.loss == "elbo"
    honest = presets.synthetic_config("square", "node", "default", 0)
    assert "late_start" not in honest.model.model_fields


@pytest.mark.parametrize(
    ("dataset", "model", "message"),
    [
        ("squares", "ctfno", "unknown dataset 'squares'; known are square"),
        ("square", "fno_2d", "no cell square with fno_2d; models are ctfno"),
        ("reaction", "deeponet", "no cell reaction with deeponet; models are ctfno, fno_2d"),
    ],
)
def test_unknown_cells_list_the_known_ones(dataset, model, message):
    with pytest.raises(ValueError, match=message):
        presets.synthetic_config(dataset, model, "default", 0)


@pytest.mark.parametrize("model", ["ctfno", "node", "anode", "neural_flow", "neural_laplace", "fno_2d"])
@pytest.mark.parametrize("preset", ["quick", "default", "paper"])
def test_every_cell_of_reaction_builds(model, preset):
    config = presets.synthetic_config("reaction", model, preset, 1)
    u = jax.eval_shape(
        lambda key: predict.model_of(config).init_with_output(key, jnp.zeros((1, 100, 1)), jnp.arange(1, 51) / 50)[0],
        jax.random.key(0),
    )
    assert u.shape == (1, 50, 100, 1)
    assert config.experiment == "synthetic"
