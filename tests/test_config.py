"""The config: JSON in and out, single fields replaced, and every rule with its message."""

import dataclasses
import json

import pytest

from ctfno_jax import config as config_lib
from ctfno_jax.config import ConfigError, ExperimentConfig


def test_json_round_trip_gives_an_equal_config(tiny_config):
    assert ExperimentConfig.from_json(tiny_config.to_json()) == tiny_config


def test_defaults_survive_the_round_trip_and_pass_the_rules():
    config = ExperimentConfig()
    assert ExperimentConfig.from_json(config.to_json()) == config
    assert config_lib.check(config) is config


def test_loading_a_file_equals_parsing_its_text(tiny_config, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(tiny_config.to_json())
    assert ExperimentConfig.load(path) == tiny_config


def test_missing_fields_keep_their_defaults():
    config = ExperimentConfig.from_json('{"seed": 7, "train": {"steps": 300}}')
    assert config == dataclasses.replace(ExperimentConfig(), seed=7, train=config_lib.TrainConfig(steps=300))


def test_a_whole_number_is_accepted_where_a_float_is_meant():
    config = ExperimentConfig.from_json('{"optimizer": {"learning_rate": 1}}')
    assert isinstance(config.optimizer.learning_rate, float)
    assert config.optimizer.learning_rate == 1.0


def test_json_text_is_sorted_and_readable_as_json(tiny_config):
    values = json.loads(tiny_config.to_json())
    assert list(values) == sorted(values)
    assert values["model"]["model_fields"]["modes"] == [6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[1, 2]", "config must be a JSON object, got list"),
        ('{"sead": 1}', "config has unknown fields sead; known are experiment, preset, seed"),
        ('{"train": {"stepz": 1}}', "train has unknown fields stepz; known are steps, batch_size"),
        ('{"train": 5}', "train must be a JSON object, got int"),
        ('{"model": "ctfno"}', "model must be a JSON object, got str"),
        ('{"seed": "one"}', "seed must be of type int, got 'one'"),
        ('{"seed": true}', "seed must be of type int, got True"),
        ('{"seed": 1.0}', r"seed must be of type int, got 1\.0"),
        ('{"train": {"sign_flips": 1}}', "sign_flips must be of type bool, got 1"),
        ('{"optimizer": {"learning_rate": true}}', "learning_rate must be of type float, got True"),
        ('{"optimizer": {"schedule": 3}}', "schedule must be of type str, got 3"),
        ('{"dataset": {"data_options": [1]}}', r"data_options must be of type dict, got \[1\]"),
        ('{"model": {"model_fields": "width"}}', "model_fields must be of type dict, got 'width'"),
    ],
)
def test_unreadable_configs_say_what_is_wrong(text, message):
    with pytest.raises(ConfigError, match=message):
        ExperimentConfig.from_json(text)


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        ("dataset", "num_test", 11),
        ("dataset", "data_options", {"viscosity": 0.5}),
        ("model", "model_fields", {"width": 12}),
        ("optimizer", "learning_rate", 0.25),
        ("optimizer", "schedule", "cosine"),
        ("train", "times_per_step", 3),
        ("train", "sign_flips", True),
        ("train", "reflections", True),
        ("train", "translations", True),
        ("train", "shared_normalization", True),
        ("dataset", "data_file", "1D_diff-sorp_NA_NA.h5"),
    ],
)
def test_replacing_a_field_changes_that_field_and_nothing_else(tiny_config, section, field, value):
    changed = config_lib.replace_fields(tiny_config, {field: value})
    assert getattr(getattr(changed, section), field) == value
    before = getattr(getattr(tiny_config, section), field)
    assert config_lib.replace_fields(changed, {field: before}) == tiny_config


def test_replacing_fields_of_all_sections_at_once(tiny_config):
    overrides = {"num_test": 9, "model": "ctfno", "clip_norm": 2, "steps": 10}
    changed = config_lib.replace_fields(tiny_config, overrides)
    found = (changed.dataset.num_test, changed.model.model, changed.optimizer.clip_norm, changed.train.steps)
    assert found == (9, "ctfno", 2.0, 10)


def test_replacing_nothing_gives_an_equal_config(tiny_config):
    assert config_lib.replace_fields(tiny_config, {}) == tiny_config


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"stepz": 3}, "unknown config field stepz"),
        ({"steps": "many"}, "steps must be of type int, got 'many'"),
        ({"num_train": 0}, "num_train must be at least 1, got 0"),
        ({"num_validation": 0}, "num_validation must be at least 1, got 0"),
        ({"num_test": 0}, "num_test must be at least 1, got 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"times_per_step": -1}, "times_per_step must be at least 0, got -1"),
        ({"train_grid": -1}, "train_grid must be at least 0, got -1"),
        ({"steps_per_call": 0}, "steps_per_call must be at least 1, got 0"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be at least 1, got 0"),
        ({"decay_steps": 0}, "decay_steps must be at least 1, got 0"),
        ({"clip_norm": -1.0}, r"clip_norm must be at least 0, got -1\.0"),
        ({"weight_decay": -0.5}, r"weight_decay must be at least 0, got -0\.5"),
        ({"learning_rate": 0.0}, r"learning_rate must be positive and finite, got 0\.0"),
        ({"learning_rate": float("inf")}, "learning_rate must be positive and finite, got inf"),
        ({"warmup_fraction": 1.0}, r"warmup_fraction must be in \[0, 1\), got 1\.0"),
        ({"decay_factor": -0.5}, r"decay_factor must be in \(0, 1\], got -0\.5"),
        ({"clip_norm": float("nan")}, "clip_norm must be at least 0, got nan"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive and finite, got nan"),
        ({"average_decay": 1.0}, r"average_decay must be in \[0, 1\), got 1\.0"),
        ({"average_decay": -0.1}, r"average_decay must be in \[0, 1\), got -0\.1"),
        ({"num_validation": 24}, "num_validation=24 trajectories are held out of num_train=24; leave some"),
        ({"batch_size": 21}, "batch_size=21 exceeds the 20 training trajectories"),
        ({"steps": 9}, "steps=9 must be a multiple of steps_per_call=2"),
        ({"eval_every": 3}, "eval_every=3 must be a multiple of steps_per_call=2"),
        ({"eval_every": 0}, "eval_every must be at least"),
        ({"window": -1}, "window must be at least 0, got -1"),
        ({"window": 1.5}, r"window must be of type int, got 1\.5"),
        ({"reflections": 1}, "reflections must be of type bool, got 1"),
        ({"random_starts": -0.1, "shared_normalization": True}, r"random_starts must be in \[0, 1\], got -0\.1"),
        ({"random_starts": 1.5, "shared_normalization": True}, r"random_starts must be in \[0, 1\], got 1\.5"),
        ({"random_starts": float("nan"), "shared_normalization": True}, r"random_starts must be in \[0, 1\], got nan"),
        ({"random_starts": 0.5}, "random_starts and window .* need shared_normalization"),
        ({"window": 2}, "random_starts and window .* need shared_normalization"),
        (
            {"random_starts": 0.5, "shared_normalization": True, "times_per_step": 0},
            "random_starts needs times_per_step of at least 1, or a window and a model with a horizon",
        ),
    ],
)
def test_values_out_of_range_are_refused_by_name(tiny_config, overrides, message):
    with pytest.raises(ConfigError, match=message):
        config_lib.replace_fields(tiny_config, overrides)


def test_the_largest_batch_is_all_training_trajectories(tiny_config):
    assert config_lib.replace_fields(tiny_config, {"batch_size": 20}).train.batch_size == 20


@pytest.mark.parametrize(
    "overrides", [{"random_starts": 1}, {"random_starts": 0.5}, {"window": 3, "times_per_step": 0}]
)
def test_solutions_may_be_initial_states_if_the_normalization_is_shared(tiny_config, overrides):
    changed = config_lib.replace_fields(tiny_config, {"shared_normalization": True, **overrides})
    assert ExperimentConfig.from_json(changed.to_json()) == changed
    assert {name: getattr(changed.train, name) for name in overrides} == overrides


def test_a_config_error_is_a_value_error():
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize("change", [{"window": 2}, {"random_starts": 0.5}, {}])
def test_the_acoustic_frame_has_no_shared_times_or_statistics(tiny_config, change):
    with pytest.raises(ConfigError, match="in the acoustic frame"):
        config_lib.replace_fields(tiny_config, {"frame": "acoustic", "shared_normalization": True, **change})


@pytest.mark.parametrize(
    "change", [{"window": 2}, {"random_starts": 0.5}, {"translations": True}, {"sign_flips": True}]
)
def test_the_aligned_frame_keeps_waves_at_the_origin(tiny_config, change):
    aligned = {"frame": "aligned", "shared_normalization": True}
    assert config_lib.replace_fields(tiny_config, aligned).train.frame == "aligned"
    with pytest.raises(
        ConfigError, match="in the aligned frame the first wave of all initial states starts at the origin"
    ):
        config_lib.replace_fields(tiny_config, {**aligned, **change})


def test_an_unknown_frame_lists_the_known_ones(tiny_config):
    with pytest.raises(ConfigError, match="unknown frame 'moving'; known are aligned, comoving, particles, aligned_"):
        config_lib.replace_fields(tiny_config, {"frame": "moving"})


@pytest.mark.parametrize("frame", ["states", "clocked_states"])
def test_frames_of_states_are_for_steps_on_labels(tiny_config, frame):
    states = {"frame": frame, "window": 2, "random_starts": 0.5, "times_per_step": 0, "train_grid": 32}
    assert config_lib.replace_fields(tiny_config, states).train.frame == frame
    for change in ({"window": 0, "random_starts": 0.0}, {"shared_normalization": True}):
        with pytest.raises(ConfigError, match=f"the frame of {frame} is for models that make steps"):
            config_lib.replace_fields(tiny_config, {**states, **change})


@pytest.mark.parametrize("frame", config_lib.OWN_GRID)
def test_frames_with_a_grid_of_their_own_need_its_points(tiny_config, frame):
    with pytest.raises(
        ConfigError, match=f"the {frame} frame has train_grid points: set it to 8 or more, got train_gr"
    ):
        config_lib.replace_fields(tiny_config, {"frame": frame, "train_grid": 7})
