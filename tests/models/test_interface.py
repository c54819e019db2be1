"""What models implement besides a call, alone and inside wrappers."""

import jax
import numpy as np
import pytest
from helpers import small_ctfno

from ctfno_jax.models import interface
from ctfno_jax.models.composition import Residual, Semigroup
from ctfno_jax.models.ctfno import CTFNO
from ctfno_jax.models.deeponet import DeepONet
from ctfno_jax.models.fno import FNO2D, FNORNN
from ctfno_jax.models.neural_flow import FieldNeuralFlow, ObservedNeuralFlow
from ctfno_jax.models.neural_laplace import FieldNeuralLaplace, ObservedNeuralLaplace
from ctfno_jax.models.neural_ode import FieldNeuralODE, ObservedNeuralODE
from ctfno_jax.models.observed import ObservedCTFNO
from ctfno_jax.models.pod_deeponet import PODDeepONet
from ctfno_jax.models.recurrent_ode import SONODE, RecurrentNODE

TIMES = np.array([0.35, 0.1])


def wrapped(operator):
    return Semigroup(Residual(operator, rise_time=0.1), step_size=0.1, num_steps=2)


def test_fields_of_inner_operators_are_checked():
    interface.check_fields(wrapped(CTFNO()))
    for outer in (wrapped, ObservedCTFNO):
        with pytest.raises(ValueError, match="width=7 must be divisible by heads=2"):
            interface.check_fields(outer(CTFNO(width=7, heads=2)))


def test_models_without_steps_reach_all_times_as_they_are():
    for model in (CTFNO(), ObservedCTFNO(CTFNO()), Residual(CTFNO(), 0.1), DeepONet()):
        assert interface.reaching(model, TIMES) is model
        assert interface.unanswerable(model, TIMES) is None


@pytest.mark.parametrize(("time", "num_times"), [(0.0, 1), (0.1, 1), (0.3, 3), (0.9, 9), (5.0, 50)])
def test_a_stepping_fno_has_exactly_as_many_steps_as_the_times_need(time, num_times):
    model = FNORNN(time_step=0.1, num_times=4)
    assert interface.reaching(model, np.array([0.1, time], np.float32)) == model.clone(num_times=num_times)
    assert interface.unanswerable(model, np.array([0.1, time], np.float32)) is None


def test_steps_of_operators_inside_wrappers_reach_the_times_too():
    model = Residual(FNORNN(time_step=0.1, num_times=4), 0.1)
    assert interface.reaching(model, np.array([0.7])).operator.num_times == 7
    assert "multiples of 0.1 up to 0.4, got 0.35" in str(interface.unanswerable(model, TIMES))
    composed = interface.reaching(wrapped(FNORNN(time_step=0.05, num_times=50)), TIMES)
    assert (composed.num_steps, composed.operator.operator.num_times) == (4, 2)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (FNO2D(final_time=1.0, num_times=10), "multiples of 0.1 from 0.1 up to 1, got 0.35"),
        (FieldNeuralLaplace(), "positive times"),
        (FieldNeuralODE(stepping="queries"), "cannot step to t=0"),
        (Residual(FieldNeuralLaplace(), 0.1), "positive times"),
        (wrapped(FieldNeuralLaplace()), "positive times"),
    ],
)
def test_times_without_an_answer_are_named(model, text):
    assert text in str(interface.unanswerable(model, np.array([0.35, 0.0])))


def test_only_models_on_a_grid_of_times_are_resampled():
    model = FNO2D(num_times=10)
    assert interface.resampled(model, 20) == model.clone(num_times=20)
    assert interface.resampled(Residual(model, 0.1), 20) == Residual(model.clone(num_times=20), 0.1)
    with pytest.raises(ValueError, match="CTFNO has no grid of times to resample"):
        interface.resampled(Residual(CTFNO(), 0.1), 20)


def test_constants_from_data_are_those_of_the_model_itself():
    model = PODDeepONet(width=4, depth=1, num_sensors=8, num_modes=2)
    u0, times = small_ctfno.state(5, 8, 1), np.array([0.5, 1.0], np.float32)
    u = small_ctfno.state(5, 2, 8, 1, seed=1)
    variables = jax.jit(model.init)(jax.random.key(0), u0, times)
    filled = interface.initialize_from_data(model, variables, u0, times, u)
    jax.tree.map(np.testing.assert_array_equal, filled, model.initialize_from_data(variables, u0, times, u))
    assert interface.initialize_from_data(CTFNO(), variables, u0, times, u) is variables
    assert interface.takes_data(model)
    assert interface.takes_data(wrapped(model))
    assert not interface.takes_data(wrapped(CTFNO()))
    with pytest.raises(ValueError, match="PODDeepONet inside Residual cannot be initialised from solutions"):
        interface.initialize_from_data(Residual(model, 0.1), variables, u0, times, u)


def test_losses_that_models_implement_themselves():
    assert interface.loss_method(ObservedNeuralFlow(), "elbo") == "negative_elbo"
    assert interface.loss_method(SONODE(), "with_steps") == "loss_with_steps"
    with pytest.raises(ValueError, match="loss=elbo is for models with a latent distribution; SONODE has none"):
        interface.loss_method(SONODE(), "elbo")
    with pytest.raises(ValueError, match="no model implements a loss 'mse' itself; known are elbo, with_steps"):
        interface.loss_method(SONODE(), "mse")


def test_properties_of_solvers_are_seen_through_wrappers():
    ode = FieldNeuralODE(stepping="queries")
    for model in (ode, Residual(ode, 0.1), wrapped(ode)):
        assert interface.may_fail(model)
        assert interface.distinct_times(model)
        assert "adjoint=checkpoints cannot be sharded over several devices" in str(interface.single_device(model))
        direct = interface.forward_differentiable(model)
        assert interface.single_device(direct) is None
        assert interface.forward_differentiable(direct) is direct
    for model in (CTFNO(), wrapped(CTFNO()), FieldNeuralFlow()):
        assert not interface.may_fail(model)
        assert not interface.distinct_times(model)
        assert interface.single_device(model) is None
        assert interface.forward_differentiable(model) is model
    assert interface.single_device(RecurrentNODE()) is None
    assert not interface.distinct_times(FieldNeuralODE())


def test_evaluations_of_the_vector_field_are_counted():
    model = ObservedNeuralODE(2, width=3, depth=1, solver="heun", stepping="constant", step_size=0.25)
    observed, times = small_ctfno.state(3, 4, 2), np.array([1.0, 0.5], np.float32)
    variables = jax.jit(model.init)(jax.random.key(0), observed, times)
    assert interface.count_evaluations(model, variables, observed, times) == 8.0
    assert interface.count_evaluations(CTFNO(), {}, observed, times) is None
    assert interface.count_evaluations(SONODE(), {}, observed, times) is None


@pytest.mark.parametrize(
    ("model", "times"),
    [(CTFNO(), 7), (FNORNN(num_times=9), 9), (FNORNN(num_times=5), 7), (wrapped(CTFNO()).clone(num_steps=16), 16)],
)
def test_models_on_a_time_grid_compute_all_of_it(model, times):
    assert interface.times_per_call(model, 7) == times


def test_series_models_differ_in_what_time_zero_is():
    for model in (ObservedNeuralODE(), ObservedNeuralFlow()):
        assert interface.from_last_observation(model)
    for model in (ObservedCTFNO(CTFNO()), ObservedNeuralLaplace(), SONODE()):
        assert not interface.from_last_observation(model)
    assert interface.follows_observations(SONODE())
    assert not interface.follows_observations(ObservedNeuralODE())
