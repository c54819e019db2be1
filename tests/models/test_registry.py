"""Models by name and from plain values."""

import json

import pytest

from ctfno_jax.models import ctfno, registry


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
    surrogates = {"ctfno", "fno_rnn", "fno_2d", "deeponet", "pod_deeponet"}
    assert set(registry.model_names()) == surrogates | {"ablation_input", "ablation_lifted", "ablation_features"}


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("fno_rnn", {"time_step": 0.0}, "time_step must be positive and finite, got 0"),
        ("fno_2d", {"modes": [4, 9], "num_times": 10}, "keep 9 frequencies in t, but 10 instants carry at most 6"),
        ("deeponet", {"time_features": 3}, "time_features must be 0 or an even positive number, got 3"),
        ("pod_deeponet", {"num_modes": 9, "num_sensors": 8}, "num_modes=9 must be at most the 8 values"),
        ("ablation_lifted", {"head": "cubic"}, "head must be one of linear, mlp, got 'cubic'"),
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
