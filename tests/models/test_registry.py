"""Models by name and from plain values."""

import json

import jax
import jax.numpy as jnp
import pytest

from ctfno_jax.models import ctfno, latent, neural_ode, registry


def test_a_model_is_built_from_its_fields():
    assert registry.build_model("ctfno", width=8, heads=2) == ctfno.CTFNO(width=8, heads=2)


def test_lists_as_json_has_them_become_tuples():
    fields = json.loads('{"modes": [6, 5], "padding": [0.25, 0.0], "width": 8}')
    model = registry.build_model("ctfno", **fields)
    assert (model.modes, model.padding) == ((6, 5), (0.25, 0.0))
    assert hash(model.modes) == hash((6, 5))


def test_hyper_parameters_are_the_fields_with_type_and_default():
    known = registry.hyper_parameters("ctfno")
    assert known["width"] == (int, 64)
    assert known["stability_bound"] == (float | None, None)
    assert not {"parent", "name"} & set(known)


def test_defaults_alone_build_every_model():
    for name in registry.model_names():
        fields = {field: default for field, (_, default) in registry.hyper_parameters(name).items()}
        assert registry.build_model(name, **fields) == registry.model_class(name)()


def test_the_models_of_the_paper_and_the_ablations_are_there():
    surrogates = {"ctfno", "ctfno_at_once", "fno_rnn", "fno_2d", "deeponet", "pod_deeponet"}
    continuous = {"node", "anode", "neural_flow", "neural_laplace"}
    ablations = {"ablation_input", "ablation_lifted", "ablation_features"}
    assert set(registry.model_names()) == surrogates | continuous | ablations


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("fno_rnn", {"time_step": 0.0}, "time_step must be positive and finite, got 0"),
        ("fno_2d", {"modes": [4, 9], "num_times": 10}, "keep 9 frequencies in t, but 10 instants carry at most 6"),
        ("deeponet", {"time_features": 3}, "time_features must be 0 or an even positive number, got 3"),
        ("pod_deeponet", {"num_modes": 9, "num_sensors": 8}, "num_modes=9 must be at most the 8 values"),
        ("ablation_lifted", {"head": "cubic"}, "head must be one of linear, mlp, got 'cubic'"),
        ("node", {"solver": "rk4"}, "solver must be one of euler, heun, tsit5, dopri5, dopri8, got 'rk4'"),
        ("anode", {"augmented": -1}, "augmented must not be negative, got -1"),
        ("neural_flow", {"kind": "planar"}, "kind must be one of coupling, resnet, got 'planar'"),
        ("neural_laplace", {"num_terms": 0}, "num_terms must be positive and finite, got 0"),
        ("ablation_input", {"time_features": 4}, "has no time_features and no time_channels: leave them out"),
    ],
)
def test_every_kind_of_model_refuses_fields_when_it_is_built(name, fields, message):
    with pytest.raises(ValueError, match=message):
        registry.build_model(name, **fields)


def test_an_unknown_model_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown model 'ctfnoo'; known are .*ctfno"):
        registry.build_model("ctfnoo")


def test_an_unknown_field_lists_the_known_ones():
    with pytest.raises(ValueError, match="model ctfno has no field wdith; it has out_channels, width"):
        registry.build_model("ctfno", wdith=3)


def test_fields_that_contradict_each_other_are_refused_when_building():
    with pytest.raises(ValueError, match="width=10 must be divisible by heads=4"):
        registry.build_model("ctfno", width=10, heads=4)


# --- models of series ---------------------------------------------------------------------------------------------


def test_some_models_have_a_form_for_series():
    recurrent = {"node_rnn", "anode_rnn", "sonode", "hbnode", "ghbnode"}
    both = {"anode", "ctfno", "neural_flow", "neural_laplace", "node"}
    assert set(registry.model_names(series=True)) == both | recurrent
    assert both == set(registry.model_names(series=True)) & set(registry.model_names())
    assert registry.build_series_model("node", width=8) == neural_ode.ObservedNeuralODE(width=8)
    assert registry.build_model("node", width=8) == neural_ode.FieldNeuralODE(width=8)


def test_defaults_alone_build_every_model_of_series():
    for name in registry.model_names(series=True):
        fields = {field: default for field, (_, default) in registry.hyper_parameters(name, series=True).items()}
        expected = latent.ObservedCTFNO(ctfno.CTFNO()) if name == "ctfno" else registry.SERIES_MODELS[name]()
        assert registry.build_series_model(name, **fields) == expected


def test_fields_of_an_operator_and_of_what_is_around_it_stand_side_by_side():
    known = registry.hyper_parameters("ctfno", series=True)
    assert known["width"] == registry.hyper_parameters("ctfno")["width"]
    assert (known["grid_points"], known["out_features"]) == ((int, 16), (int, 1))
    assert not {"operator", "out_channels", "parent", "name"} & set(known)
    model = registry.build_series_model("ctfno", width=8, heads=2, modes=[4], grid_points=10, out_features=3)
    operator = ctfno.CTFNO(width=8, heads=2, modes=(4,))
    assert model == latent.ObservedCTFNO(operator, grid_points=10, out_features=3)


@pytest.mark.parametrize(
    ("name", "fields", "count"),
    [
        ("ctfno", {"width": 16, "modes": [4], "depth": 3, "heads": 1, "time_width": 32, "time_features": 16}, 17_858),
        ("node", {}, 17_025),
        ("anode", {"augmented": 1}, 17_282),
        ("neural_laplace", {}, 17_194),
        ("neural_flow", {}, 18_565),
    ],
)
def test_numbers_of_parameters_for_a_hundred_observed_numbers(name, fields, count):
    model = registry.build_series_model(name, **fields)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 100, 1)), jnp.ones(3))
    assert ctfno.num_parameters(shapes) == count


@pytest.mark.parametrize("name", ["fno_rnn", "deeponett"])
def test_a_model_without_a_form_for_series_lists_those_with_one(name):
    message = f"unknown model '{name}'; known are {', '.join(registry.model_names(series=True))}$"
    with pytest.raises(ValueError, match=message):
        registry.build_series_model(name)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("ctfno", {"out_channels": 2}, "model ctfno has no field out_channels; it has width, .*grid_points"),
        ("ctfno", {"operator": 2}, "model ctfno has no field operator; it has width"),
        ("ctfno", {"width": 10, "heads": 4}, "width=10 must be divisible by heads=4"),
        ("node", {"out_channels": 2}, "model node has no field out_channels; it has out_features"),
        ("node", {"solver": "euler"}, "use stepping=constant"),
        ("neural_flow", {"observation_std": 0.0}, "observation_std must be positive and finite, got 0"),
        ("neural_laplace", {"latent": 0}, "latent must be positive and finite, got 0"),
    ],
)
def test_every_kind_of_model_of_series_refuses_fields_when_it_is_built(name, fields, message):
    with pytest.raises(ValueError, match=message):
        registry.build_series_model(name, **fields)
