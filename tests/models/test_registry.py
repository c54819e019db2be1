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


def test_an_unknown_model_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown model 'ctfnoo'; known are .*ctfno"):
        registry.build_model("ctfnoo")


def test_an_unknown_field_lists_the_known_ones():
    with pytest.raises(ValueError, match="model ctfno has no field wdith; it has out_channels, width"):
        registry.build_model("ctfno", wdith=3)


def test_fields_that_contradict_each_other_are_refused_when_building():
    with pytest.raises(ValueError, match="width=10 must be divisible by heads=4"):
        registry.build_model("ctfno", width=10, heads=4)
