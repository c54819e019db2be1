"""Data sets by name."""

import numpy as np
import pytest

from ctfno_jax.data import fields, registry

OPTIONS = {"num_points": 16, "num_times": 3}


def test_sizes_are_the_asked_ones_and_validation_is_taken_out_of_training():
    data = registry.load_dataset("heat", num_train=9, num_validation=2, num_test=4, **OPTIONS)
    assert (len(data.train), len(data.validation), len(data.test)) == (7, 2, 4)
    assert data.name == "heat"


def test_no_trajectory_is_in_two_sets():
    data = registry.load_dataset("heat", num_train=9, num_validation=2, num_test=4, **OPTIONS)
    u0 = np.concatenate([data.train.u0, data.validation.u0, data.test.u0])
    assert len(np.unique(u0.reshape(13, -1), axis=0)) == 13


def test_the_seed_decides_the_data():
    first, again, other = (
        registry.load_dataset("heat", num_train=5, num_validation=1, num_test=2, seed=seed, **OPTIONS)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.test.u, again.test.u)
    assert np.abs(first.test.u - other.test.u).max() > 1e-3


def test_options_reach_the_generator():
    data = registry.load_dataset("heat", num_train=5, num_validation=1, num_test=2, final_time=0.6, **OPTIONS)
    np.testing.assert_allclose(data.train.times, [0.2, 0.4, 0.6], rtol=1e-6)
    expected = fields.heat_trajectories(7, 0, final_time=0.6, **OPTIONS)
    np.testing.assert_array_equal(data.test.u, expected.u[:2])


def test_facts_describe_the_training_data():
    data = registry.load_dataset("heat", num_train=5, num_validation=1, num_test=2, **OPTIONS)
    assert data.info["initial_std"] == pytest.approx(float(data.train.u0.std()), rel=1e-6)
    assert data.info["final_std"] == pytest.approx(float(data.train.u[:, -1].std()), rel=1e-6)
    assert (data.info["num_points"], data.info["num_times"]) == (16, 3)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown dataset 'heet'; known are .*heat"):
        registry.load_dataset("heet")
    assert "heat" in registry.dataset_names()


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"dataset heat has no option viscocity; it has num_points, viscosity"):
        registry.load_dataset("heat", viscocity=1.0)


@pytest.mark.parametrize("reserved", ["num_samples"])
def test_arguments_of_the_generator_that_are_not_options_are_refused(reserved):
    with pytest.raises(ValueError, match=f"dataset heat has no option {reserved}"):
        registry.load_dataset("heat", **{reserved: 3})


@pytest.mark.parametrize("option", [{"num_points": "many"}, {"num_times": 0}, {"num_points": 0}, {"viscosity": "x"}])
def test_options_of_a_wrong_type_or_size_are_a_value_error(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        registry.load_dataset("heat", num_train=5, num_validation=1, num_test=2, **{**OPTIONS, **option})


def test_trajectories_between_times_start_from_the_same_states_and_agree_with_the_solver():
    sizes = {"num_test": 2, "seed": 3}
    data = registry.load_dataset("heat", num_train=5, num_validation=1, num_points=16, num_times=4, **sizes)
    between = registry.load_between_times("heat", num_points=16, num_times=4, **sizes)
    np.testing.assert_array_equal(between.u0, data.test.u0)
    middle = (data.test.times[1:] + data.test.times[:-1]) / 2
    np.testing.assert_allclose(between.times, middle, rtol=1e-6)
    # Every frequency decays between its values at the two neighbouring times.
    spectra = [np.abs(np.fft.rfft(u[..., 0], axis=-1))[..., 1] for u in (data.test.u, between.u)]
    np.testing.assert_allclose(spectra[1], np.sqrt(spectra[0][:, 1:] * spectra[0][:, :-1]), rtol=1e-5)
