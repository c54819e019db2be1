"""The config: JSON in and out, types and texts of settings, and every rule with its message."""

import dataclasses
import json
from collections.abc import Mapping

import pytest

from ctfno_jax import config as config_lib
from ctfno_jax.config import ConfigError, DataConfig, ExperimentConfig, OptimizerConfig, TrainConfig


@pytest.fixture(scope="module")
def config() -> ExperimentConfig:
    return ExperimentConfig(
        experiment="trial", dataset="mine", model="small", preset="quick", seed=3, task="fields",
        data=DataConfig(num_train=20, num_validation=4, num_test=3, data_options={"num_points": 32}),
        network=config_lib.NetworkConfig("net", {"width": 8, "modes": (6, 4), "bound": None}),
        optimizer=OptimizerConfig(learning_rate=3e-3), train=TrainConfig(8, 2, 4), settings={"batch_size": 8},
    )  # fmt: skip


# --- JSON -----------------------------------------------------------------------------------------------------


def test_json_round_trip_gives_an_equal_config(config):
    values = json.loads(json.dumps(config.to_dict()))
    assert values["network"]["network_fields"]["modes"] == [6, 4]
    again = config_lib.from_dict(ExperimentConfig, values)
    assert again.to_dict() == config.to_dict()
    assert (again.data, again.optimizer, again.train) == (config.data, config.optimizer, config.train)


def test_a_config_cannot_be_changed(config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 4


def test_fields_that_are_left_out_keep_their_defaults():
    assert config_lib.from_dict(TrainConfig, {"steps": 300}) == TrainConfig(steps=300)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([1, 2], "config must be a JSON object, got list"),
        ({"sead": 1}, "config has unknown fields sead; known are experiment, dataset, model, preset, seed, task"),
        ({"seed": "one"}, "seed must be a whole number, got 'one'"),
        ({"seed": True}, "seed must be a whole number, got True"),
        ({"seed": 1.0}, r"seed must be a whole number, got 1\.0"),
        ({"seed": None}, "seed must be a whole number, got None"),
        ({"train": 5}, "train must be a JSON object, got int"),
        ({"train": {"stepz": 1}}, "train has unknown fields stepz; known are steps, steps_per_call"),
        ({"optimizer": {"learning_rate": True}}, "learning_rate must be a number, got True"),
        ({"optimizer": {"learning_rate": float("inf")}}, "learning_rate must be finite, got inf"),
        ({"optimizer": {"schedule": 3}}, "schedule must be a text, got 3"),
        ({"data": {"data_options": [1]}}, r"data_options must be a JSON object, got \[1\]"),
        ({"network": {"network_fields": "width"}}, "network_fields must be a JSON object, got 'width'"),
    ],
)
def test_unreadable_configs_say_what_is_wrong(config, change, message):
    values = {**config.to_dict(), **change} if isinstance(change, dict) else change
    with pytest.raises(ConfigError, match=message):
        config_lib.from_dict(ExperimentConfig, values)


def test_missing_fields_are_named(config):
    values = config.to_dict()
    del values["seed"], values["settings"]
    with pytest.raises(ConfigError, match="config lacks the fields seed, settings"):
        config_lib.from_dict(ExperimentConfig, values)


# --- types and texts of single settings -----------------------------------------------------------------------

KINDS = {
    "whole": int, "number": float, "flag": bool, "text": str, "maybe": float | None, "maybe whole": int | None,
    "axes": tuple[int, ...], "fractions": float | tuple[float, ...], "object": Mapping[str, int],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("whole", 3, 3), ("number", 2, 2.0), ("number", 0.5, 0.5), ("flag", True, True), ("text", "a", "a"),
        ("maybe", None, None), ("maybe", 2, 2.0), ("maybe whole", 2, 2), ("axes", (4, 2), [4, 2]), ("axes", [4], [4]),
        ("fractions", [0.5, 1], [0.5, 1]), ("fractions", 1, 1.0), ("object", {"a": 1}, {"a": 1}),
    ],
)  # fmt: skip
def test_values_become_what_json_has(kind, value, expected):
    found = config_lib.typed("x", value, KINDS[kind])
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("whole", 3.0, r"x must be a whole number, got 3\.0"),
        ("whole", True, "x must be a whole number, got True"),
        ("number", "3", "x must be a number, got '3'"),
        ("number", True, "x must be a number, got True"),
        ("number", float("nan"), "x must be finite, got nan"),
        ("flag", 1, "x must be true or false, got 1"),
        ("text", None, "x must be a text, got None"),
        ("maybe", "none", "x must be a number, or none, got 'none'"),
        ("maybe", float("-inf"), "x must be finite, got -inf"),
        ("axes", 4, "x must be whole numbers separated by commas, got 4"),
        ("axes", [4.5], r"x must be whole numbers separated by commas, got \[4\.5\]"),
        ("axes", [True], r"x must be whole numbers separated by commas, got \[True\]"),
        ("fractions", [float("nan")], "x must be a number, or numbers separated by commas, got"),
        ("object", [1], r"x must be a JSON object, got \[1\]"),
    ],
)
def test_values_of_another_type_are_refused(kind, value, message):
    with pytest.raises(ConfigError, match=message):
        config_lib.typed("x", value, KINDS[kind])


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("whole", "3", 3), ("number", "1e-3", 1e-3), ("number", "2", 2.0), ("flag", "true", True),
        ("flag", "False", False), ("flag", "1", True), ("text", "none", "none"), ("maybe", "none", None),
        ("maybe", "None", None), ("maybe", "2.5", 2.5), ("maybe whole", "4", 4), ("axes", "9,4", [9, 4]),
        ("axes", "9", [9]), ("axes", "[9, 4]", [9, 4]), ("fractions", "0.5", 0.5),
        ("fractions", "0.5,0.25", [0.5, 0.25]),
    ],
)  # fmt: skip
def test_texts_of_flags_are_parsed(kind, text, expected):
    found = config_lib.parse("x", text, KINDS[kind])
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("whole", "3.5"), ("whole", "many"), ("number", "none"), ("flag", "maybe"), ("maybe", "big"), ("axes", "a,b"),
     ("axes", ""), ("fractions", "0.5,x"), ("object", "{}")],
)  # fmt: skip
def test_texts_that_cannot_be_are_refused_by_name(kind, text):
    with pytest.raises(ConfigError, match=f"--x cannot be '{text}': it must be {config_lib.type_name(KINDS[kind])}"):
        config_lib.parse("x", text, KINDS[kind])


# --- rules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (DataConfig, {"num_train": -1}, "num_train must be at least 0, got -1"),
        (DataConfig, {"data_seed": -1}, "data_seed must be at least 0, got -1"),
        (TrainConfig, {"steps": 0}, "steps must be at least 1, got 0"),
        (TrainConfig, {"steps_per_call": 0}, "steps_per_call must be at least 1, got 0"),
        (TrainConfig, {"keep_checkpoints": 0}, "keep_checkpoints must be at least 1, got 0"),
        (TrainConfig, {"eval_every": 0}, "eval_every must be at least 1, got 0"),
        (TrainConfig, {"steps": 150}, "steps=150 must be a multiple of steps_per_call=100"),
        (TrainConfig, {"eval_every": 30}, "eval_every=30 must be a multiple of steps_per_call=100"),
        (OptimizerConfig, {"decay_steps": 0}, "decay_steps must be at least 1, got 0"),
        (OptimizerConfig, {"clip_norm": -1.0}, r"clip_norm must be at least 0, got -1\.0"),
        (OptimizerConfig, {"weight_decay": -0.5}, r"weight_decay must be at least 0, got -0\.5"),
        (OptimizerConfig, {"learning_rate": 0.0}, r"learning_rate must be positive and finite, got 0\.0"),
        (OptimizerConfig, {"learning_rate": float("nan")}, "learning_rate must be positive and finite, got nan"),
        (OptimizerConfig, {"clip_norm": float("nan")}, "clip_norm must be at least 0, got nan"),
        (OptimizerConfig, {"warmup_fraction": 1.0}, r"warmup_fraction must be in \[0, 1\), got 1\.0"),
        (OptimizerConfig, {"decay_factor": -0.5}, r"decay_factor must be in \[0, 1\], got -0\.5"),
        (OptimizerConfig, {"decay_factor": 0.0}, "decay_factor must be positive, got 0"),
        (OptimizerConfig, {"average_decay": 1.0}, r"average_decay must be in \[0, 1\), got 1\.0"),
        (OptimizerConfig, {"average_decay": -0.1}, r"average_decay must be in \[0, 1\), got -0\.1"),
    ],
)
def test_values_out_of_range_are_refused_by_name(cls, values, message):
    with pytest.raises(ConfigError, match=message):
        cls(**values)


def test_a_config_error_is_a_value_error():
    assert issubclass(ConfigError, ValueError)
