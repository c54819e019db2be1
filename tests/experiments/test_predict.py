"""The prediction program: from a file of states to a file of solutions, a figure, notes, and one-line mistakes."""

import numpy as np
import pytest
from helpers import compiled, prediction
from helpers.parameters import random_parameters

from ctfno_jax import Predictor, build_model, fit
from ctfno_jax.data.readers import npy
from ctfno_jax.plotting import fields as field_plots
from ctfno_jax.transforms.protocol import Chain
from experiments import predict as predict_program
from experiments import program

TIMES = np.asarray([0.5, 1.0, 2.5], np.float32)


@pytest.fixture(scope="module", autouse=True)
def cheap(tmp_path_factory):
    with prediction.one_device(), compiled.kept_in(tmp_path_factory.mktemp("compiled")):
        yield


# --- a run in two dimensions, from end to end -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Of fields on 8 x 6 points with two channels."""
    u0 = prediction.waves(6, 8, 6, channels=2)
    folder = tmp_path_factory.mktemp("runs") / "plane"
    model = prediction.network((2, 2), out_channels=2)
    fit(model, u0, TIMES, prediction.decay(u0, TIMES), steps=1, batch_size=4, workdir=folder, progress=False)
    return folder


@pytest.mark.slow
def test_a_run_in_two_dimensions_is_queried(workdir, tmp_path, monkeypatch, capsys):
    u0 = prediction.waves(2, 10, 7, channels=2)
    u0[0, 0, 0, 1] = 1000.0
    np.save(tmp_path / "u0.npy", u0)
    output = tmp_path / "new" / "u.npz"
    prediction.call(
        monkeypatch, predict_program, f"--workdir={workdir}", f"--input={tmp_path / 'u0.npy'}", "--times=2,0.1,9",
        f"--output={output}",
    )  # fmt: skip
    with np.load(output) as found:
        assert found["u"].shape == (2, 3, 10, 7, 2)
        assert np.all(np.isfinite(found["u"]))
        np.testing.assert_allclose(found["times"], [2.0, 0.1, 9.0], rtol=1e-12)
        np.testing.assert_array_equal(found["u0"], u0)
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    text = capsys.readouterr().out
    assert "u (2, 3, 10, 7, 2) as (batch, time, *space, channels)" in text
    assert "note: times up to 9 lie beyond the training horizon of 2.5" in text
    assert "note: channel 1 of the input goes from" in text
    assert "channel 0" not in text


# --- the same without a checkpoint ----------------------------------------------------------------------------------


def made_up(model, *grid: int, in_channels: int = 1, out_channels: int = 1, task: str = "fields") -> Predictor:
    """A run with random parameters: what it can be asked does not depend on its training."""
    about = {
        "task": task, "title": "made up", "grid": list(grid), "in_channels": in_channels,
        "out_channels": out_channels, "final_time": 2.5, "range": [[-3.0] * in_channels, [3.0] * in_channels],
        "channels": [f"c{i}" for i in range(out_channels)],
    }  # fmt: skip
    params = random_parameters(model, np.zeros((1, *grid, in_channels), np.float32), TIMES, scale=0.3)
    return Predictor(model, params, Chain(()), about)


@pytest.fixture(scope="module")
def line():
    """Fields on a line with one channel."""
    return made_up(prediction.network((6,)), 16)


@pytest.fixture
def query(line, tmp_path, monkeypatch):
    """Calls the program on an array, and gives back what it wrote."""
    monkeypatch.setattr(predict_program, "load_predictor", lambda workdir: line)
    monkeypatch.setattr(predict_program, "draw", lambda *_: field_plots.Figure())

    def run(array=None, **changes):
        if array is not None:
            np.save(tmp_path / "u0.npy", array)
        given = {"workdir": "run", "input": tmp_path / "u0.npy", "times": "0.5", "output": tmp_path / "u.npz"} | changes
        flags = [f"--{name}={value}" for name, value in given.items() if value is not None]
        prediction.call(monkeypatch, predict_program, *flags)
        with np.load(given["output"]) as found:
            return dict(found)

    return run


def test_all_forms_of_one_state_give_one_answer(query):
    state = np.random.default_rng(1).normal(size=16)
    answers = [query(array)["u"] for array in (state, state[None], state[:, None], state[None, :, None])]
    assert answers[0].shape == (1, 1, 16, 1)
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_forms_in_several_dimensions():
    assert predict_program.as_states(np.zeros((8, 6)), 1, 2).shape == (1, 8, 6, 1)
    assert predict_program.as_states(np.zeros((3, 8, 6)), 1, 2).shape == (3, 8, 6, 1)
    assert predict_program.as_states(np.zeros((8, 6, 2)), 2, 2).shape == (1, 8, 6, 2)
    assert predict_program.as_states(np.zeros((3, 4, 5, 6, 2)), 2, 3).shape == (3, 4, 5, 6, 2)


@pytest.mark.parametrize(
    ("array", "changes", "message"),
    [
        (np.zeros((1, 16)), {"input": None}, "--input is missing"),
        (np.zeros((1, 16)), {"times": None}, "--times is missing"),
        (np.zeros((1, 16)), {"times": "0.1;2"}, r"--times must look like .* got '0\.1;2'"),
        (np.zeros((1, 16)), {"times": "0:1"}, "--times must look like .* got '0:1'"),
        (np.zeros((1, 16)), {"times": "0:1:0"}, "--times must look like .* got '0:1:0'"),
        (np.zeros((1, 16)), {"times": "-1,2"}, "times must be finite and >= 0, got -1"),
        (np.zeros((1, 16)), {"times": "nan"}, "times must be finite and >= 0, got nan"),
        (np.zeros((1, 16)), {"times": "0:inf:3"}, "times must be finite and >= 0, got"),
        (np.zeros((1, 16)), {"output": "u.csv"}, r"--output must end in \.npz, got u\.csv"),
        (np.zeros((1, 16)), {"input": "/nowhere/u0.npy"}, "/nowhere/u0.npy: there is no such file"),
        (np.zeros((1, 16, 3)), {}, r"initial states .* 1 channels, got shape \(1, 16, 3\)"),
        (np.zeros((1, 2, 16, 1)), {}, r"with 1 space axes and 1 channels, got shape \(1, 2, 16, 1\)"),
        (np.zeros((1, 16), complex), {}, "u0 must be an array of real numbers, got dtype complex128"),
        (np.full((1, 16), "x"), {}, "u0 must be an array of real numbers, got dtype <U1"),
        (np.zeros((1, 16), object), {}, "is not a .npy file of plain numbers: .*allow_pickle=False"),
        (np.full((1, 16), np.nan), {}, "u0 contains values that are not finite"),
        (np.full((1, 16), 1e300), {}, r"u0 holds values up to 1e\+300, too large for float32"),
        (np.zeros((0, 16)), {}, r"u0 must have shape .* got \(0, 16, 1\)"),
        (
            np.zeros((1, 8)),
            {},
            r"the grid \(8,\) is too coarse for the trained network: it needs \(10,\) points or more",
        ),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(query, tmp_path, array, changes, message):
    with pytest.raises(program.USER_ERRORS, match=message) as caught:
        query(array, **changes)
    assert "\n" not in program.one_line(caught.value)
    assert not (tmp_path / "u.npz").exists()


def test_too_many_times_are_refused_before_they_are_made(query, monkeypatch):
    monkeypatch.setattr(predict_program, "parse_times", lambda text: pytest.fail("made the times"))
    with pytest.raises(ValueError, match=r"1 samples at 1000000000000 times would take .* GiB, more than half of the"):
        query(np.zeros((1, 16)), times="0:2:1000000000000")


def test_an_archive_is_no_array(query, tmp_path):
    np.savez(tmp_path / "u0.npz", u0=np.zeros((1, 16)))
    with pytest.raises(ValueError, match=r"is an archive of several arrays; save one array with numpy\.save"):
        query(input=tmp_path / "u0.npz")


@pytest.mark.parametrize("kind", ["truncated", "text", "empty", "folder"])
def test_files_that_are_not_one_plain_array_are_refused(tmp_path, kind):
    path = tmp_path / "u0.npy"
    if kind == "truncated":
        np.save(path, np.zeros((3, 50)))
        path.write_bytes(path.read_bytes()[:-20])
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("0.1 0.2" if kind == "text" else "")
    with pytest.raises(ValueError, match=r"u0\.npy") as caught:
        npy.read(path)
    assert "\n" not in str(caught.value)


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_computed(query, tmp_path, monkeypatch):
    monkeypatch.setattr(predict_program, "load_predictor", lambda workdir: pytest.fail("loaded a run"))
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"cannot make the directory .*file/inner: Not a directory"):
        query(np.zeros((1, 16)), output=tmp_path / "file" / "inner" / "u.npz")


@pytest.mark.parametrize(
    ("text", "expected"), [("0.1,0.37,2", [0.1, 0.37, 2.0]), ("1:3:5", [1, 1.5, 2, 2.5, 3]), ("2:9:1", [2]), ("3", [3])]
)
def test_times_are_read_as_a_list_or_as_an_even_grid_with_both_ends(text, expected):
    np.testing.assert_allclose(predict_program.parse_times(text), expected, rtol=1e-12)
    assert predict_program.count_times(text) == len(expected)


# --- figures --------------------------------------------------------------------------------------------------------


def drawn(predictor, *shape: int):
    """The figure of an answer of that shape, ``(time, *space, channels)``."""
    rng = np.random.default_rng(0)
    u0 = rng.standard_normal((2, *shape[1:-1], predictor.in_channels))
    return predict_program.draw(predictor, u0, np.asarray([2.0, 0.5, 1.0]), rng.standard_normal((2, *shape)))


def test_every_channel_on_a_line_is_drawn_in_the_order_of_the_times():
    figure = drawn(made_up(prediction.network(out_channels=3), 12, out_channels=3), 3, 9, 3)
    assert [axis.get_ylabel() for axis in figure.axes] == ["c0", "c1", "c2"]
    first, second = figure.axes[:2]
    labels = [text.get_text() for text in first.get_legend().get_texts()]
    assert labels == ["initial state", "t = 0.5", "t = 1", "t = 2"]
    assert len(second.lines) == 3  # the input has no second channel


def test_every_channel_in_a_plane_is_drawn():
    model = prediction.network((2, 2), out_channels=2)
    figure = drawn(made_up(model, 8, 6, in_channels=2, out_channels=2), 3, 8, 6, 2)
    images = [axis for axis in figure.axes if axis.images]
    assert len(images) >= 6
    assert {axis.get_ylabel() for axis in images if axis.get_ylabel()} == {"c0, prediction", "c1, prediction"}


def test_a_forecast_is_drawn_by_component():
    model = build_model("series_ctfno", grid_points=6, modes=[3], **prediction.TINY, out_features=2)
    figure = drawn(made_up(model, 5, in_channels=2, out_channels=2, task="series"), 3, 2)
    (axis,) = figure.axes
    assert len(axis.lines) == 2
    assert list(axis.lines[0].get_xdata()) == [0.5, 1.0, 2.0]
