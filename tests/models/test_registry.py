"""Models by name and from plain values."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from ctfno_jax.models import ctfno, neural_ode, observed, registry
from ctfno_jax.models.composition import Residual, Semigroup


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


def test_every_name_means_classes_of_its_own():
    assert set(registry.model_names()) == {
        "ctfno", "ctfno_semigroup", "fno_rnn", "fno_2d", "deeponet", "pod_deeponet",
        "ablation_input", "ablation_lifted", "ablation_features", "neural_ode", "neural_flow", "neural_laplace",
        "series_ctfno", "series_neural_ode", "series_neural_flow", "series_neural_laplace",
        "recurrent_node", "recurrent_anode", "sonode", "hbnode", "ghbnode", "latent_ctfno", "latent_ctfno_attention",
        "latent_ode_rnn", "latent_ode", "latent_flow", "rnn_vae", "ode_rnn", "fno_classifier", "cnn", "image_anode",
    }  # fmt: skip
    assert len({repr(tree) for tree in registry.MODELS.values()}) == len(registry.MODELS)


def _expected(tree, required):
    """The model made by hand, with the fields that have no default."""
    own = {f.name: required[f.name] for f in dataclasses.fields(tree.cls) if f.name in required}
    return tree.cls(**{part: _expected(inner, required) for part, inner in tree.parts.items()}, **own)


def test_defaults_build_every_model():
    needed = {"step_size": 0.1, "num_steps": 4, "rise_time": 0.2}
    for name, tree in registry.MODELS.items():
        known = registry.hyper_parameters(name)
        fields = {field: default for field, (_, default) in known.items() if default is not dataclasses.MISSING}
        required = {field: needed[field] for field in known if field not in fields}
        made = registry.build_model(name, **required)
        assert made == registry.build_model(name, **fields, **required) == _expected(tree, required)


def test_fields_of_a_chain_stand_side_by_side():
    network = ctfno.CTFNO(width=8, heads=2, modes=(4,))
    composed = registry.build_model(
        "ctfno_semigroup", width=8, heads=2, modes=[4], rise_time=0.2, step_size=0.1, num_steps=3
    )
    assert composed == Semigroup(Residual(network, rise_time=0.2), step_size=0.1, num_steps=3)
    series = registry.build_model("series_ctfno", width=8, heads=2, modes=[4], grid_points=10, out_features=3)
    assert series == observed.ObservedCTFNO(network, grid_points=10, out_features=3)
    known = registry.hyper_parameters("series_ctfno")
    assert known["width"] == registry.hyper_parameters("ctfno")["width"]
    assert not {"operator", "out_channels", "parent", "name"} & set(known)
    assert registry.hyper_parameters("ctfno_semigroup")["step_size"] == (float, dataclasses.MISSING)


def test_forms_for_fields_and_series_have_names_of_their_own():
    assert registry.build_model("series_neural_ode", width=8) == neural_ode.ObservedNeuralODE(width=8)
    assert registry.build_model("neural_ode", width=8) == neural_ode.FieldNeuralODE(width=8)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("ctfno", {"width": 10, "heads": 4}, "width=10 must be divisible by heads=4"),
        ("ctfno_semigroup", {"step_size": 1.0, "rise_time": 0.1}, "model ctfno_semigroup needs a value of num_steps"),
        ("ctfno_semigroup", {"step_size": 1.0, "rise_time": 0.0, "num_steps": 2}, "rise_time must be positive"),
        ("fno_rnn", {"time_step": 0.0}, "time_step must be positive and finite, got 0"),
        ("fno_2d", {"modes": [4, 9], "num_times": 10}, "keep 9 frequencies in t, but 10 instants carry at most 6"),
        ("deeponet", {"time_features": 3}, "time_features must be 0 or an even positive number, got 3"),
        ("pod_deeponet", {"num_modes": 9, "num_sensors": 8}, "num_modes=9 must be at most the 8 values"),
        ("ablation_lifted", {"head": "cubic"}, "head must be one of linear, mlp, got 'cubic'"),
        ("neural_ode", {"augmented": -1}, "augmented must not be negative, got -1"),
        ("neural_flow", {"kind": "planar"}, "kind must be one of coupling, resnet, got 'planar'"),
        ("neural_laplace", {"num_terms": 0}, "num_terms must be positive and finite, got 0"),
        ("series_ctfno", {"out_channels": 2}, "has no field out_channels; it has width, .*grid_points"),
        ("series_ctfno", {"operator": 2}, "model series_ctfno has no field operator; it has width"),
        ("series_ctfno", {"width": 10, "heads": 4}, "width=10 must be divisible by heads=4"),
        ("series_neural_ode", {"solver": "euler"}, "use stepping=constant"),
        ("series_neural_flow", {"observation_std": 0.0}, "observation_std must be positive and finite, got 0"),
        ("sonode", {"stepping": "queries"}, "stepping must be adaptive or constant here"),
    ],
)  # fmt: skip
def test_every_kind_of_model_refuses_fields_when_it_is_built(name, fields, message):
    with pytest.raises(ValueError, match=message):
        registry.build_model(name, **fields)


@pytest.mark.parametrize("name", ["ctfno", "ctfno_semigroup", "fno_rnn", "fno_2d", "ablation_input", "series_ctfno"])
@pytest.mark.parametrize("modes", [4, 4.0, "4", (4.0,)])
def test_modes_must_be_a_tuple_of_integers(name, modes):
    needed = {"step_size": 0.1, "num_steps": 4, "rise_time": 0.2} if name == "ctfno_semigroup" else {}
    with pytest.raises(ValueError, match=r"^modes must be a tuple with one number per space axis, e\.g\. \(4,\), got "):
        registry.build_model(name, modes=modes, **needed)


def test_an_unknown_model_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown model 'ctfnoo'; known are ctfno, ctfno_semigroup, fno_rnn"):
        registry.build_model("ctfnoo")


def test_an_unknown_field_lists_the_known_ones():
    with pytest.raises(ValueError, match="model ctfno has no field wdith; it has out_channels, width"):
        registry.build_model("ctfno", wdith=3)


@pytest.mark.parametrize(
    ("name", "fields", "count"),
    [
        ("series_ctfno", dict(width=16, modes=[4], depth=3, heads=1, time_width=32, time_features=16), 17_858),
        ("series_neural_ode", {}, 17_025),
        ("series_neural_ode", {"augmented": 1}, 17_282),
        ("series_neural_laplace", {}, 17_194),
        ("series_neural_flow", {}, 18_565),
    ],
)
def test_numbers_of_parameters_for_a_hundred_observed_numbers(name, fields, count):
    model = registry.build_model(name, **fields)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 100, 1)), jnp.ones(3))
    assert ctfno.num_parameters(shapes) == count
