"""Training on arrays: what comes back, what is left in the folder, what continues, and what is refused."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from helpers import compiled, prediction

from ctfno_jax import Residual, Semigroup, files, fit, load_predictor
from ctfno_jax.models.deeponet import DeepONet
from ctfno_jax.training import loop, run

TIMES = np.asarray([0.3, 0.1, 0.8, 1.0], np.float32)
U0 = prediction.waves(12, 16)
U = prediction.decay(U0, TIMES)
QUIET = {"batch_size": 4, "progress": False}


@pytest.fixture(scope="module", autouse=True)
def cheap(tmp_path_factory):
    with prediction.one_device(), compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        yield


def branches(**fields) -> DeepONet:
    """The model of the library that compiles fastest."""
    return DeepONet(**{"width": 4, "depth": 1, "num_sensors": 16, **fields})


class Decay(nn.Module):
    """A module that the library does not know: learned amplitude and rate of decay of each channel of the solution."""

    channels: int

    @nn.compact
    def __call__(self, u0, times):
        rate = self.param("rate", nn.initializers.zeros_init(), (self.channels,))
        amplitude = self.param("amplitude", nn.initializers.ones_init(), (self.channels,))
        times = jnp.broadcast_to(times, (len(u0), times.shape[-1]))
        times = times.reshape(*times.shape, *[1] * (u0.ndim - 1))
        return amplitude * u0[:, None, ..., : self.channels] * jnp.exp(-rate * times)


def same_variables(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


# --- what comes back ------------------------------------------------------------------------------------------------


def test_the_solution_operator_is_learned_from_two_channels_to_one(tmp_path, monkeypatch):
    """And without a workdir nothing is written."""
    monkeypatch.chdir(tmp_path)
    u0 = prediction.waves(24, 16, channels=2)
    u = 40 + 5 * prediction.decay(u0, TIMES, channels=1)
    predictor = fit(prediction.network(), u0, TIMES, u, steps=200, learning_rate=3e-2, **QUIET)
    unseen = prediction.waves(3, 20, channels=2, seed=1)
    times = np.asarray([0.5, 0.2], np.float32)
    error = predictor(unseen, times) - (40 + 5 * prediction.decay(unseen, times, channels=1))
    assert error.shape == (3, 2, 20, 1)
    assert np.sqrt(np.mean(error**2)) < 0.3 * u.std()
    assert (predictor.in_channels, predictor.description["out_channels"]) == (2, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_fields_in_three_dimensions_with_times_of_their_own():
    u0 = prediction.waves(6, 4, 5, 6, channels=2)
    times = np.random.default_rng(0).uniform(0, 1, (6, 3))
    u = prediction.decay(u0, times)
    model = prediction.network((2, 2, 2), out_channels=2)
    predictor = fit(model, jnp.asarray(u0), jnp.asarray(times), jnp.asarray(u), steps=1, **QUIET)
    answer = predictor(u0, times)
    assert answer.shape == (6, 3, 4, 5, 6, 2)
    # Samples and their times belong together.
    np.testing.assert_allclose(predictor(u0[::-1], times[::-1]), answer[::-1], rtol=1e-4, atol=1e-5)
    assert not np.allclose(predictor(u0, times[::-1]), answer, atol=1e-3)


@pytest.mark.slow
def test_times_of_each_sample_that_agree_are_shared_times():
    u0 = prediction.waves(10, 6, 5, channels=2)
    u = prediction.decay(u0, TIMES, channels=1)
    shared = fit(Decay(1), u0, TIMES, u, steps=30, learning_rate=0.1, **QUIET)
    own = fit(Decay(1), u0, np.tile(TIMES, (10, 1)), u, steps=30, learning_rate=0.1, **QUIET)
    np.testing.assert_allclose(own.params["params"]["rate"], shared.params["params"]["rate"], rtol=1e-5)
    assert abs(float(shared.params["params"]["rate"][0])) > 0.05


@pytest.mark.slow
def test_a_composed_residual_is_exact_at_time_zero_and_certified_beyond_its_training():
    u0 = 3 + 2 * prediction.waves(8, 12)
    model = Semigroup(Residual(prediction.network(), rise_time=0.1), step_size=0.5, num_steps=2)
    predictor = fit(model, u0, TIMES, prediction.decay(u0, TIMES), steps=2, **QUIET)
    times = np.asarray([0.0, 0.4, 1.0, 2.2], np.float32)
    noise = 1e-2 * np.random.default_rng(1).standard_normal(u0.shape)
    noisy, plain = np.split(predictor(np.concatenate([u0 + noise, u0]), times), 2)
    np.testing.assert_allclose(plain[:, 0], u0, rtol=1e-5, atol=1e-5)
    change = np.linalg.norm(noisy - plain, axis=2)[..., 0]
    assert np.all(change <= predictor.lipschitz(times) * np.linalg.norm(noise, axis=1) * (1 + 1e-3))
    assert predictor.notes(u0, times) == ["times up to 2.2 lie beyond the training horizon of 1"]


def test_a_module_of_the_user_is_trained_but_not_saved(tmp_path):
    predictor = fit(Decay(1), U0, TIMES, U, steps=200, learning_rate=0.05, **QUIET)
    np.testing.assert_allclose(predictor(U0, [2.0]), prediction.decay(U0, [2.0]), atol=0.1)
    with pytest.raises(ValueError, match="a Decay cannot be saved: only models of the library"):
        fit(Decay(1), U0, TIMES, U, steps=1, workdir=tmp_path / "new" / "run", **QUIET)
    assert list(tmp_path.iterdir()) == []


def test_fewer_trajectories_than_a_batch_are_all_used():
    predictor = fit(Decay(1), U0[:3], TIMES, U[:3], steps=1, batch_size=20, progress=False)
    assert np.all(np.isfinite(predictor(U0, TIMES)))


# --- the folder -----------------------------------------------------------------------------------------------------

STEPS = 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run, and the predictor that came back."""
    folder = tmp_path_factory.mktemp("fit") / "run"
    return folder, fit(branches(), U0, TIMES, U, steps=STEPS, workdir=folder, **QUIET)


def test_the_folder_holds_what_every_run_leaves(finished):
    folder, predictor = finished
    there = {path.name for path in folder.iterdir()}
    assert there == {"config.json", "metrics.jsonl", "checkpoints", "figures", "result.json"}
    assert (folder / "figures" / "trajectory.png").read_bytes().startswith(b"\x89PNG")
    row = json.loads((folder / "result.json").read_text())
    stated = [row[name] for name in ("experiment", "model", "steps", "evaluated_on")]
    assert stated == ["fit", "DeepONet", STEPS, "validation"]
    assert row["num_params"] == sum(np.size(leaf) for leaf in jax.tree.leaves(predictor.params))
    lines = numbers_over_steps(folder)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert row["metrics"]["validation_rmse"] == min(line["validation_rmse"] for line in lines)


def test_the_predictor_is_the_one_that_the_folder_gives(finished):
    folder, predictor = finished
    loaded = load_predictor(folder)
    assert same_variables(loaded.params, predictor.params)
    np.testing.assert_array_equal(loaded(U0, TIMES), predictor(U0, TIMES))


@pytest.mark.slow
def test_a_folder_changes_nothing_about_the_training(finished):
    in_memory = fit(branches(), U0, TIMES, U, steps=STEPS, **QUIET)
    assert same_variables(in_memory.params, finished[1].params)
    facts = in_memory.description
    assert facts == {name: finished[1].description[name] for name in facts}


def numbers_over_steps(folder) -> list[dict[str, float]]:
    """All that a run logged besides its seconds."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_an_interrupted_run_continues_bitwise(way, finished, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "write_figure", lambda path, figure: None)  # slow, and the same as above
    folder = tmp_path / "run"
    options = {"steps": STEPS, "workdir": folder, **QUIET}
    whole_fit = loop.fit

    def interrupted_fit(*args, hooks, **kwargs):
        def interrupt(state, report):
            if report.step == 3:
                raise (loop.Interrupted if way == "stopped" else KeyboardInterrupt)("now")

        # A process that is killed has written its metrics, but not its checkpoint.
        (writers,) = hooks
        writers.insert(2 if way == "stopped" else 1, interrupt)
        return whole_fit(*args, hooks=hooks, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "fit", interrupted_fit)
        with pytest.raises((loop.Interrupted, KeyboardInterrupt), match="now"):
            fit(branches(), U0, TIMES, U, **options)
    assert not (folder / "result.json").exists()
    with pytest.raises(ValueError, match="holds an unfinished run; resume it, or choose another workdir"):
        fit(branches(), U0, TIMES, U, **options)
    resumed = fit(branches(), U0, TIMES, U, resume=True, **options)
    assert same_variables(resumed.params, finished[1].params)
    assert numbers_over_steps(folder) == numbers_over_steps(finished[0])


def test_a_finished_run_is_loaded_and_not_trained_again(finished, monkeypatch, capsys):
    monkeypatch.setattr(run, "train", lambda *_, **__: pytest.fail("trained"))
    again = fit(branches(), U0, TIMES, U, steps=STEPS, workdir=finished[0], batch_size=4)
    np.testing.assert_array_equal(again(U0, TIMES), finished[1](U0, TIMES))
    assert "has finished already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"u0": U0[::-1]}, "arrays.u0.hash"),
        ({"times": TIMES[::-1]}, "arrays.times.hash"),
        ({"u": U[..., ::-1, :]}, "arrays.u.hash"),
        ({"model": branches(width=6)}, "network.width is 4 there and 6 here"),
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"learning_rate": 0.5}, r"optimizer.learning_rate is 0.001 there and 0.5 here"),
    ],
)
def test_the_folder_of_another_run_is_refused(finished, change, difference):
    given = {"model": branches(), "u0": U0, "times": TIMES, "u": U, **change}
    before = (finished[0] / "result.json").read_bytes()
    with pytest.raises(ValueError, match=rf"belongs to another config \({difference}.*choose another workdir"):
        fit(**given, steps=STEPS, workdir=finished[0], resume=True, **QUIET)
    assert (finished[0] / "result.json").read_bytes() == before


# --- what is refused ------------------------------------------------------------------------------------------------


def with_value(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.astype(np.float64)
    changed.flat[7 % changed.size] = value
    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"u0": U0 + 1j}, "u0 must hold real numbers, got dtype complex64; pass real and imaginary parts as two"),
        ({"u": U.astype(object)}, "u must hold real numbers, got dtype object"),
        ({"times": TIMES.astype(str)}, "times must hold real numbers, got dtype <U32"),
        ({"u0": [[1.0], [1.0, 2.0]]}, "u0 must be an array: .*inhomogeneous"),
        ({"u0": with_value(U0, np.nan)}, "u0 contains values that are not finite; remove those trajectories first"),
        ({"u": with_value(U, 1e300)}, "u contains values that are not finite"),
        ({"times": TIMES - 0.2}, r"times must be finite and >= 0, got -0\.1"),
        ({"times": with_value(np.tile(TIMES, (12, 1)), -3)}, "times must be finite and >= 0, got -3"),
        ({"times": TIMES[:0], "u": U[:, :0]}, "times is empty"),
        ({"times": np.float32(1)}, r"times must have shape \(time,\) or \(batch, time\), got shape \(\)"),
        ({"times": TIMES[:3]}, r"u must have shape .*\(12, 3, 16, 'channels'\) .* got \(12, 4, 16, 1\)"),
        ({"times": np.tile(TIMES, (5, 1))}, r"u must have shape .* and times \(5, 4\), got \(12, 4, 16, 1\)"),
        ({"u": U[:7]}, r"u must have shape .* to agree with u0 \(12, 16, 1\) .* got \(7, 4, 16, 1\)"),
        ({"u": U[:, :, :8]}, r"u must have shape .* got \(12, 4, 8, 1\)"),
        ({"u": U[..., 0]}, r"u must have shape .* got \(12, 4, 16\)"),
        ({"u0": U0[..., 0]}, r"u0 must have shape \(batch, \*space, channels\) with 1 to 3 space axes .* \(12, 16\)"),
        ({"u0": U0[:0], "u": U[:0]}, r"no empty one, got \(0, 16, 1\)"),
        ({"u0": U0[:1], "u": U[:1]}, "fit needs two trajectories or more, one of them for validation, got 1"),
        ({"u0": np.tile(U0[:, None], (1, 16, 1, 1)), "u": np.tile(U[:, :, None], (1, 1, 16, 1, 1))}, "3 axes"),
        ({"u": np.tile(U, 2)}, "the data have 2 output channels, but the network answers 1; set out_channels"),
        ({"validation": 0.0}, "validation must be a share of the trajectories between 0 and 1, got 0.0"),
        ({"validation": 1.5}, "validation must be a share .* got 1.5"),
        ({"validation": "some"}, "validation must be a share .* got 'some'"),
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"steps": 1e3}, r"steps must be a whole number of at least 1, got 1000\.0"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"times_per_step": 5}, "times_per_step=5 exceeds the 4 times of the data; 0 is all"),
        ({"times_per_step": -1}, "times_per_step must be a whole number of at least 0, got -1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive and finite, got 0.0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"resume": True, "workdir": None}, "resume=True continues the run in a workdir, got workdir=None"),
        ({"model": DeepONet}, "model must be a Flax module such as CTFNO"),
        ({"model": prediction.network((20,))}, r"modes \(20,\) do not fit a grid of \(16,\) points"),
        ({"model": branches(num_sensors=7)}, "u0 has 16 points, which is not a multiple of num_sensors=7"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(tmp_path, change, message):
    given = {"model": branches(), "u0": U0, "times": TIMES, "u": U, "workdir": tmp_path / "new" / "run", **QUIET}
    with pytest.raises(ValueError, match=message) as caught:
        fit(**{**given, **change})
    assert "\n" not in str(caught.value) or re.search("inhomogeneous", str(caught.value))
    assert list(tmp_path.iterdir()) == []
