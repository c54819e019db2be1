"""Trained runs as functions: transformed by JAX, on requests of any size, in physical units, and what is refused."""

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from helpers import compiled, prediction, small_runs
from helpers.parameters import random_parameters

from ctfno_jax import Residual, Semigroup, build_model, load_predictor, predict
from ctfno_jax.config import TrainConfig
from ctfno_jax.data import problems, series
from ctfno_jax.data.trajectories import FieldDataset, Trajectories
from ctfno_jax.models.deeponet import DeepONet
from ctfno_jax.models.neural_flow import FieldNeuralFlow
from ctfno_jax.tasks import prediction as evaluation
from ctfno_jax.tasks.fields import FieldSettings, FieldTask
from ctfno_jax.tasks.series import SeriesSettings, SeriesTask
from ctfno_jax.training import run
from ctfno_jax.training.checkpoint import CheckpointError
from ctfno_jax.training.workdir import Workdir
from ctfno_jax.transforms.protocol import Chain

TIMES = np.asarray([0.25, 0.5, 0.75, 1.0], np.float32)


@pytest.fixture(scope="module", autouse=True)
def cheap(tmp_path_factory):
    with prediction.one_device(), compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        yield


# --- every kind of run ----------------------------------------------------------------------------------------------


def field_task(model, settings, u0, channels=None, **about) -> FieldTask:
    everything = Trajectories(u0, TIMES, prediction.decay(u0, TIMES, channels))
    problem = problems.FieldProblem("decay", final_time=1.0, num_times=4, **about)
    train, validation = everything.select(slice(2, None)), everything.select(slice(2))
    return FieldTask(FieldDataset(problem, train, validation, None, {}), model, settings)


def fields() -> FieldTask:
    """From two channels of different units to one."""
    u0 = prediction.waves(10, 14, channels=2) * [5.0, 0.1] + [30.0, -2.0]
    settings = FieldSettings(batch_size=4, times_per_step=2)
    return field_task(prediction.network(), settings, u0.astype(np.float32), channels=1)


def odd_extension() -> FieldTask:
    settings = FieldSettings(batch_size=4, times_per_step=2, transform="odd_extension", train_grid=12)
    walls = problems.Walls(0.5, 0.0, right_slip=0.1)
    return field_task(prediction.network(), settings, prediction.waves(10, 15), walls=walls, periodic=False)


def semigroup() -> FieldTask:
    model = Semigroup(Residual(prediction.network(), rise_time=0.1), step_size=0.5, num_steps=2)
    settings = FieldSettings(
        batch_size=4, times_per_step=2, window=3, random_starts=0.5, shared_normalization=True
    )  # fmt: skip
    return field_task(model, settings, 4 + prediction.waves(10, 13))


def observations() -> SeriesTask:
    t = np.arange(9) * 0.25
    values = 7 + np.sin(t + np.arange(10)[:, None])[..., None] * [1.0, 20.0]
    seen = series.observe(t, values, 5)
    data = series.SeriesDataset("sines", seen.select(slice(2, None)), seen.select(slice(2)), None, {}, scaled=False)
    model = build_model("series_ctfno", grid_points=6, modes=[3], **prediction.TINY, out_features=2)
    return SeriesTask(data, model, SeriesSettings(batch_size=4), components=("x", "y"))


TASKS = {"fields": fields, "odd_extension": odd_extension, "semigroup": semigroup, "series": observations}


@pytest.fixture(scope="module")
def workdirs(tmp_path_factory):
    """Folder of a run of each kind, trained for one step when it is first asked for."""
    folders = {}

    def of(kind):
        if kind not in folders:
            task, folders[kind] = TASKS[kind](), tmp_path_factory.mktemp("runs") / kind
            with Workdir(folders[kind], {"kind": kind}) as workdir:
                length = TrainConfig(steps=1, steps_per_call=1, eval_every=1)
                run.train(task, optimizer=small_runs.OPTIMIZER, config=length, workdirs=[workdir], show_progress=False)
        return folders[kind]

    return of


@pytest.fixture(scope="module")
def predictors(workdirs):
    loaded = {}

    def of(kind):
        if kind not in loaded:
            loaded[kind] = load_predictor(workdirs(kind))
        return loaded[kind]

    return of


def states_of(predictor) -> np.ndarray:
    """Three states within the range of the training data."""
    low, high = np.asarray(predictor.description["range"])
    shape = (3, *predictor.description["grid"], predictor.in_channels)
    return (low + (high - low) * np.random.default_rng(3).uniform(size=shape)).astype(np.float32)


@pytest.mark.parametrize("kind", [k if k == "fields" else pytest.param(k, marks=pytest.mark.slow) for k in TASKS])
def test_every_run_is_a_function_that_jax_transforms(predictors, kind):
    predictor = predictors(kind)
    u0 = states_of(predictor)
    direction = np.random.default_rng(4).standard_normal(u0.shape).astype(np.float32) * u0.std(axis=(0, 1))
    scale = np.abs(predictor(u0, TIMES)).max()

    def mean(params, u0):
        each = jax.vmap(lambda a: predictor.apply(params, a[None], TIMES)[0])(u0)
        return jnp.mean(jnp.sin(each / scale)), each

    transformed = jax.jit(jax.value_and_grad(mean, argnums=(0, 1), has_aux=True))
    (_, each), (by_params, by_state) = transformed(predictor.params, u0)
    np.testing.assert_allclose(each, predictor(u0, TIMES), rtol=1e-4, atol=1e-5 * scale)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(by_params))
    assert any(np.any(leaf) for leaf in jax.tree.leaves(by_params))
    later, earlier = (np.sin(predictor(u0 + 1e-2 * s * direction, TIMES) / scale).mean() for s in (1, -1))
    assert float(np.sum(by_state * direction)) == pytest.approx((later - earlier) / 2e-2, rel=0.05, abs=1e-5)


@pytest.mark.parametrize(
    "kind", ["fields", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("odd_extension", "semigroup"))]
)
def test_certificates_bound_differences_in_physical_units(predictors, kind):
    predictor = predictors(kind)
    u0 = states_of(predictor)
    change = np.linalg.norm(np.diff(predictor(u0, TIMES), axis=0), axis=(2, 3))
    distance = np.linalg.norm(np.diff(u0, axis=0), axis=(1, 2))
    bound = predictor.lipschitz(TIMES)
    assert bound.shape == (4,)
    assert np.all(change <= bound * distance[:, None])


@pytest.mark.slow
def test_series_have_another_certificate(predictors):
    with pytest.raises(ValueError, match="certificates of series models are given by observed_lipschitz"):
        predictors("series").lipschitz([1.0])


@pytest.mark.parametrize("kind", ["fields", "odd_extension", "series"])
def test_runs_are_loaded_and_asked_in_double_precision(workdirs, predictors, kind):
    single = predictors(kind)
    u0 = states_of(single)
    with jax.enable_x64(True):
        double = load_predictor(workdirs(kind))
        answer = double(u0.astype(np.float64), TIMES.astype(np.float64))
        assert answer.dtype == np.float64
        assert double(u0, TIMES).dtype == np.float32
    np.testing.assert_allclose(answer, single(u0, TIMES), rtol=1e-4, atol=1e-5 * np.abs(answer).max())
    # Double precision all the way: what single precision loses is not lost.
    assert np.any(answer != answer.astype(np.float32))


def test_a_predictor_says_what_it_is(predictors):
    assert repr(predictors("fields")) == "Predictor(CTFNO, decay, 2 -> 1 channels)"
    assert repr(predictors("series")) == "Predictor(ObservedCTFNO, sines, 2 -> 2 channels)"


# --- folders without a run ------------------------------------------------------------------------------------------


def test_folders_without_a_run_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"nowhere holds no trained run: there is no .*nowhere/checkpoints"):
        load_predictor(tmp_path / "nowhere")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CheckpointError, match="holds no checkpoint yet: train first, or wait for the first one"):
        load_predictor(tmp_path)


def test_a_run_of_another_version_is_refused(workdirs, monkeypatch):
    known = predict.registry.from_dict
    monkeypatch.setattr(predict.registry, "from_dict", lambda values: known({**values, "frame": "aligned"}))
    with pytest.raises(
        CheckpointError, match=r"from another version of the library .*no field frame.*; train it again"
    ):
        load_predictor(workdirs("fields"))


# --- requests of any size -------------------------------------------------------------------------------------------


class Watched(nn.Module):
    """u0 (1 + rate t), which keeps the shapes that it was traced for."""

    record: Callable
    stepping: str = "constant"

    @nn.compact
    def __call__(self, u0, times):
        self.record((u0.shape[0], times.shape))
        rate = self.param("rate", nn.initializers.ones_init(), ())
        every = jnp.broadcast_to(times, (len(u0), times.shape[-1]))
        return u0[:, None] * (1 + rate * every[..., None, None])


def watched(**fields) -> tuple[list, evaluation.Evaluator, dict]:
    seen: list = []
    return seen, evaluation.Evaluator(Watched(seen.append, **fields), Chain(())), {"params": {"rate": jnp.asarray(2.0)}}


def exact(u0, times):
    return u0[:, None] * (1 + 2 * np.broadcast_to(times, (len(u0), times.shape[-1]))[..., None, None])


@pytest.mark.parametrize("own", [False, True])
def test_requests_of_one_size_class_are_compiled_once(own):
    seen, evaluate, params = watched()
    rng = np.random.default_rng(0)
    for batch, num_times in ((5, 10), (6, 11), (5, 12), (6, 9)):
        u0, times = rng.standard_normal((batch, 7, 1)), rng.uniform(size=(batch, num_times) if own else num_times)
        u0, times = u0.astype(np.float32), times.astype(np.float32)
        np.testing.assert_allclose(evaluate(params, u0, times), exact(u0, times), rtol=1e-6)
    assert seen == [(6, (6, 12) if own else (12,))]
    evaluate(params, np.ones((7, 7, 1), np.float32), np.ones(3, np.float32))
    assert seen[1:] == [(8, (3,))]


def test_padded_requests_get_the_answers_of_the_network(predictors):
    """Five samples and three times are padded to six and three, or by pieces to two and two."""
    predictor = predictors("fields")
    u0 = np.concatenate([states_of(predictor), states_of(predictor)[:2] + 1])
    own = np.random.default_rng(5).uniform(0, 1, (5, 3)).astype(np.float32)
    for times in (TIMES[:3], own):
        expected = jax.jit(predictor.apply)(predictor.params, u0, times)
        np.testing.assert_allclose(predictor(u0, times), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("points", "largest"), [(7 * 8, (1, 8)), (7 * 2, (1, 2)), (1, (1, 1)), (7 * 48, (4, 12))])
def test_large_requests_are_answered_in_pieces(monkeypatch, own, points, largest):
    monkeypatch.setattr(evaluation, "_POINTS_PER_CALL", points)
    seen, evaluate, params = watched()
    u0 = np.random.default_rng(0).standard_normal((5, 7, 1)).astype(np.float32)
    times = np.random.default_rng(1).uniform(size=(5, 11) if own else 11).astype(np.float32)
    np.testing.assert_allclose(evaluate(params, u0, times), exact(u0, times), rtol=1e-6)
    assert [(batch, shape[-1]) for batch, shape in seen] == [largest]


def test_times_that_must_differ_are_neither_repeated_nor_divided(monkeypatch):
    monkeypatch.setattr(evaluation, "_POINTS_PER_CALL", 7 * 3)
    seen, evaluate, params = watched(stepping="queries")
    u0, times = np.ones((2, 7, 1), np.float32), np.linspace(0.1, 1, 5).astype(np.float32)
    np.testing.assert_allclose(evaluate(params, u0, times), exact(u0, times), rtol=1e-6)
    assert seen == [(1, (5,))]


# --- notes ----------------------------------------------------------------------------------------------------------


def test_requests_within_the_training_data_have_no_notes(predictors):
    for kind in ("fields", "series"):
        predictor = predictors(kind)
        assert predictor.notes(states_of(predictor), TIMES) == []


def test_times_and_states_outside_of_the_training_data_are_noted(predictors):
    predictor = predictors("fields")
    u0 = states_of(predictor)
    low, high = np.asarray(predictor.description["range"])
    # A little beyond the range is no note; as far again as the range is wide is one, for its channel only.
    assert predictor.notes(u0 + 0.1 * (high - low), TIMES) == []
    u0[1, 3, 1] = high[1] + (high[1] - low[1])
    times, state = predictor.notes(u0, [0.5, 3.0])
    assert times == "times up to 3 lie beyond the training horizon of 1"
    assert re.match(rf"channel 1 of the input goes from .* to {u0[1, 3, 1]:g}, far outside of the training", state)


# --- what is refused ------------------------------------------------------------------------------------------------

GOOD = np.zeros((3, 14, 2))


@pytest.mark.parametrize(
    ("u0", "times", "message"),
    [
        (GOOD + 1j, [1.0], "u0 must be an array of real numbers, got dtype complex128"),
        (GOOD.astype(object), [1.0], "u0 must be an array of real numbers, got dtype object"),
        (GOOD[:0], [1.0], r"u0 must have shape \(batch, \*space, channels\) .* 2 channels, got \(0, 14, 2\)"),
        (GOOD[:, :0], [1.0], r"u0 must have shape .* got \(3, 0, 2\)"),
        (GOOD[..., :1], [1.0], r"2 channels, got \(3, 14, 1\)"),
        (GOOD[:, None], [1.0], r"with 1 axes between .* got \(3, 1, 14, 2\)"),
        (np.full_like(GOOD, np.nan), [1.0], "u0 contains values that are not finite"),
        (np.full_like(GOOD, 1e300), [1.0], r"u0 holds values up to 1e\+300, too large for float32"),
        (GOOD, [-1.0], "times must be finite and >= 0, got -1"),
        (GOOD, [np.inf], "times must be finite and >= 0, got inf"),
        (GOOD, [], "times is empty"),
        (GOOD, [1j], "times must be an array of real numbers, got dtype complex128"),
        (GOOD, 1.0, r"times must have shape \(time,\) or \(batch, time\), got shape \(\)"),
        (GOOD, np.ones((2, 5)), r"times must have shape .* with batch=3, got shape \(2, 5\)"),
        (np.zeros((3, 2, 2)), [1.0], r"the grid \(2,\) is too coarse for the trained network: it needs \(4,\) points"),
    ],
)
def test_requests_that_cannot_be_answered_are_one_sentence(predictors, u0, times, message):
    with pytest.raises(ValueError, match=message) as caught:
        predictors("fields")(u0, times)
    assert "\n" not in str(caught.value)


def test_answers_that_cannot_be_held_are_refused_before_they_are_computed(predictors, monkeypatch):
    monkeypatch.setattr(predict, "_memory", lambda: 2**20)
    predictor = predictors("fields")
    monkeypatch.setattr(predictor, "_evaluate", lambda *_: pytest.fail("computed"))
    with pytest.raises(ValueError, match=r"3 samples at 100000 times would take 0\.0 GiB, more than half of the 0\.0"):
        predictor(GOOD, np.linspace(0, 1, 100_000))


def with_random_parameters(model, *grid: int) -> predict.Predictor:
    about = {"task": "fields", "grid": list(grid), "in_channels": 1, "out_channels": 1, "title": "made up"}
    params = random_parameters(model, np.zeros((1, *grid, 1), np.float32), TIMES, scale=0.3)
    return predict.Predictor(model, params, Chain(()), about)


@pytest.mark.slow
def test_the_smallest_grid_that_is_named_is_the_smallest_that_works():
    predictor = with_random_parameters(prediction.network((3, 4)), 16, 12)
    with pytest.raises(ValueError, match=r"the grid \(8, 5\) is too coarse .* it needs \(6, 6\) points or more"):
        predictor(np.zeros((1, 8, 5, 1)), [0.5])
    assert predictor(np.zeros((1, 6, 6, 1)), [0.5]).shape == (1, 1, 6, 6, 1)
    with pytest.raises(ValueError, match=r"the grid \(5, 12\) is too coarse"):
        predictor(np.zeros((1, 5, 12, 1)), [0.5])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            FieldNeuralFlow(num_layers=1, width=3, depth=1, num_sinusoids=2),
            r"reads only the grid of its training, \(8,\)",
        ),
        (
            DeepONet(width=3, depth=1, num_sensors=8),
            r"cannot read the grid \(12,\): u0 has 12 points, .* multiple of num_sensors=8; training had \(8,\)$",
        ),
    ],
)
def test_networks_on_fixed_points_name_the_grid_of_their_training(model, message):
    with pytest.raises(ValueError, match=message) as caught:
        with_random_parameters(model, 8)(np.zeros((1, 12, 1)), [0.5])
    assert "\n" not in str(caught.value)


def test_a_mistake_that_is_not_the_grid_keeps_its_own_message(predictors, monkeypatch):
    predictor = predictors("fields")

    def fails(*_):
        raise ValueError("something else")

    monkeypatch.setattr(predictor, "_evaluate", fails)
    with pytest.raises(ValueError, match="something else"):
        predictor(states_of(predictor), TIMES)
