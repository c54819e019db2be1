"""The frame that a run is learned in, and its certificate."""

import dataclasses

import numpy as np
import pytest
from helpers import small_ctfno

from ctfno_jax import predict
from ctfno_jax.config import DatasetConfig, ExperimentConfig, TrainConfig
from ctfno_jax.data import equations, normalization
from ctfno_jax.data.alignment import Aligned
from ctfno_jax.data.frames import FlowFrame
from ctfno_jax.data.mirrored import Mirrored


def _frame(dataset: str, frame: str, **options):
    return predict.frame_of(
        ExperimentConfig(dataset=DatasetConfig(dataset, data_options=options), train=TrainConfig(frame=frame))
    )


@pytest.mark.parametrize("kind", ["comoving", "particles", "acoustic"])
@pytest.mark.parametrize("law", ["kinematic", "dynamic"])
def test_frames_of_flows_have_the_domain_and_the_friction_of_the_data(kind, law):
    assert _frame("navier_stokes", kind, viscous_law=law) == FlowFrame(kind, 2.0, law)
    assert _frame("navier_stokes", kind) == FlowFrame(kind, 2.0, "kinematic")
    assert _frame("navier_stokes", kind, eta=0.3, zeta=0.02) == FlowFrame(kind, 2.0, viscosity=4 / 3 * 0.3 + 0.02)


def test_states_are_on_the_labels_of_the_training():
    config = ExperimentConfig(dataset=DatasetConfig("navier_stokes"), train=TrainConfig(frame="states", train_grid=64))
    assert predict.frame_of(config) == FlowFrame("states", 2.0, num_labels=64)


def test_fields_are_aligned_as_their_reflection_wants_it():
    assert _frame("heat", "aligned") == Aligned(odd=False)
    assert _frame("burgers", "aligned") == Aligned(odd=True)
    assert _frame("navier_stokes", "aligned") == Aligned(odd=False)


def test_flows_are_aligned_on_particles():
    assert _frame("navier_stokes", "aligned_particles", viscous_law="dynamic") == Aligned(
        FlowFrame("particles", 2.0, "dynamic")
    )


def test_frames_with_a_grid_of_their_own_have_that_of_the_training():
    def of(dataset, frame):
        train = TrainConfig(frame=frame, train_grid=48)
        return predict.frame_of(ExperimentConfig(dataset=DatasetConfig(dataset), train=train))

    walls = equations.EQUATIONS["diffusion_sorption"].walls
    assert of("diffusion_sorption", "mirrored") == Mirrored(walls, 48)
    diffusing = of("diffusion_sorption", "diffusing")
    # Retardation is 3.57 at a quarter, and the period is twice the domain.
    assert diffusing.diffusivity == pytest.approx(5e-4 / 3.57 / 4, rel=1e-3)
    assert dataclasses.replace(diffusing, diffusivity=None) == Mirrored(walls, 48)


def test_without_a_name_there_is_no_frame():
    assert _frame("navier_stokes", "") is None


def test_the_certificate_is_that_of_the_steps_that_a_call_makes():
    """Also far beyond the steps that the run was made with."""
    model = small_ctfno.model_of(
        out_channels=1, coordinates=False, start="state", rise_time=0.1, horizon=0.3, max_steps=2
    )
    rng = np.random.default_rng(0)
    u0, e = (rng.standard_normal((4, 10, 1)).astype(np.float32) for _ in range(2))
    description = {"config": dataclasses.asdict(ExperimentConfig()), "final_time": 1.5}
    predictor = predict.Predictor(model, small_ctfno.init(model, u0), normalization.identity(1, 1), 1, description)
    times = np.array([0.2, 1.5, 6.0], np.float32)
    grown = np.linalg.norm(predictor(u0 + 1e-2 * e, times) - predictor(u0, times), axis=2)[..., 0]
    assert np.all(grown <= predictor.lipschitz(times) * 1e-2 * np.linalg.norm(e, axis=1) * (1 + 1e-3))
    # Three steps of 0.3 and more in a row cannot be bounded by less than their product.
    assert predictor.lipschitz(times)[2] > predictor.lipschitz(times)[1] > predictor.lipschitz(times)[0]
    within = times[:2]
    np.testing.assert_allclose(predictor.apply(predictor.params, u0, within), predictor(u0, within), atol=1e-5)
