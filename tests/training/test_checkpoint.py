"""Checkpoints are restored bitwise, and damage is noticed."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ctfno_jax.training import checkpoint
from ctfno_jax.training import step as step_lib

# After a failed read, what is left of it reports to an event loop that is closed by then; nobody waits for it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def _state(seed=0, size=300_000):
    rng = np.random.default_rng(seed)
    params = {
        "params": {
            "large": jnp.asarray(rng.normal(size=(size // 3, 3)), jnp.float32),
            "inner": {"small": jnp.asarray(rng.normal(size=(2, 5)), jnp.float32)},
        }
    }
    state = step_lib.create_state(params, optax.sgd(0.1, momentum=0.9), jax.random.key(seed), average_decay=0.5)
    return state.replace(step=jnp.asarray(seed, jnp.int32))


def _save(directory, errors, *, keep_latest=2, size=300_000):
    """States with these validation errors, at the steps 1, 2, .."""
    with checkpoint.CheckpointStore(directory, keep_latest=keep_latest) as store:
        for step, error in enumerate(errors, start=1):
            store.save(step, _state(step, size), {"note": f"step {step}"}, selection=error)


def _largest_file(directory):
    return max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def _flip_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def _truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _damaged_by(directory, step, how):
    folder = directory / str(step)
    assert folder.is_dir()
    if how == "flipped byte":
        assert _largest_file(folder).stat().st_size >= 1_000_000
        _flip_byte(_largest_file(folder))
    elif how == "truncated":
        _truncate(_largest_file(folder))
    elif how == "missing file":
        _largest_file(folder).unlink()
    elif how == "empty folder":
        shutil.rmtree(folder)
        folder.mkdir()
    else:
        shutil.rmtree(folder)


def test_a_state_comes_back_bitwise_with_its_description(tmp_path):
    state = _state(3, size=30)
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        store.save(3, state, {"note": "hello", "nested": {"a": [1, 2.5, None]}}, selection=0.25)
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        found = store.restore_last()
    assert found.step == 3
    assert found.description["note"] == "hello"
    assert found.description["nested"] == {"a": [1, 2.5, None]}
    restored = checkpoint.unflatten(found.arrays, state)
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_values_without_an_equal_come_back_too(tmp_path):
    tree = {"x": np.asarray([np.nan, -0.0, np.inf, 1e-40], np.float32), "n": np.asarray(-7, np.int32)}
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        store.save(1, tree, {}, selection=1.0)
        found = store.restore_last()
    assert found.arrays["x"].tobytes() == tree["x"].tobytes()
    assert found.arrays["n"].shape == ()
    assert found.arrays["n"] == -7


def test_the_latest_and_the_best_are_kept(tmp_path):
    _save(tmp_path / "c", [0.9, 0.1, 0.5, 0.4, 0.3], keep_latest=2, size=30)
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        assert store.steps() == [2, 4, 5]
        assert store.restore_last().step == 5
        assert store.restore_best().step == 2
        assert store.restore_best().description["note"] == "step 2"


def test_a_step_saved_again_is_replaced(tmp_path):
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        store.save(4, {"x": np.zeros(3, np.float32)}, {}, selection=1.0)
        store.save(4, {"x": np.ones(3, np.float32)}, {}, selection=1.0)
        np.testing.assert_array_equal(store.restore_last().arrays["x"], 1.0)


def test_an_empty_store_has_nothing_to_restore(tmp_path):
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        assert store.steps() == []
        assert store.restore_last() is None
        assert store.restore_best() is None


@pytest.mark.parametrize("how", ["flipped byte", "truncated", "missing file", "empty folder", "missing folder"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, how, capsys):
    _save(tmp_path / "c", [0.5, 0.4])
    _damaged_by(tmp_path / "c", 2, how)
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        for found in (store.restore_last(), store.restore_best()):
            assert found.step == 1
            expected = checkpoint.flatten(_state(1))
            assert set(found.arrays) == set(expected)
            for name, array in expected.items():
                assert found.arrays[name].tobytes() == array.tobytes()
    if how in ("flipped byte", "truncated", "missing file"):
        assert "using step 1 instead" in capsys.readouterr().out


def test_a_damaged_best_is_passed_over_for_the_next_best(tmp_path, capsys):
    _save(tmp_path / "c", [0.3, 0.1, 0.2], keep_latest=3)
    _damaged_by(tmp_path / "c", 2, "flipped byte")
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        assert store.restore_best().step == 3
    assert "checkpoint 2 " in capsys.readouterr().out


def test_a_flipped_byte_is_noticed_as_damage_and_not_as_another_state(tmp_path):
    _save(tmp_path / "c", [0.5])
    _damaged_by(tmp_path / "c", 1, "flipped byte")
    with (
        checkpoint.CheckpointStore(tmp_path / "c") as store,
        pytest.raises(
            checkpoint.CheckpointError, match=r"no intact checkpoint in .*: checkpoint 1 (is damaged|cannot be read)"
        ),
    ):
        store.restore_last()


def test_if_all_are_damaged_the_error_names_each(tmp_path):
    _save(tmp_path / "c", [0.5, 0.4])
    _damaged_by(tmp_path / "c", 1, "truncated")
    _damaged_by(tmp_path / "c", 2, "flipped byte")
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        for restore in (store.restore_last, store.restore_best):
            with pytest.raises(checkpoint.CheckpointError, match="no intact checkpoint") as caught:
                restore()
            assert "checkpoint 1 " in str(caught.value)
            assert "checkpoint 2 " in str(caught.value)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["7.orbax-checkpoint-tmp", "7.orbax-checkpoint-tmp-1234"])
def test_what_an_interrupted_save_leaves_is_ignored(tmp_path, name):
    _save(tmp_path / "c", [0.5, 0.4], size=30)
    shutil.copytree(tmp_path / "c" / "2", tmp_path / "c" / name)
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        assert store.steps() == [1, 2]
        assert store.restore_last().step == 2
        store.save(7, _state(7, 30), {}, selection=0.2)
        assert store.restore_last().step == 7


def test_leaves_are_named_by_their_path():
    names = checkpoint.flatten({"a": {"b": np.zeros(2)}, "c": (np.ones(1), np.ones(3))})
    assert set(names) == {"a/b", "c/0", "c/1"}


def test_flattening_and_back_is_the_identity():
    state = _state(1, size=30)
    jax.tree.map(np.testing.assert_array_equal, checkpoint.unflatten(checkpoint.flatten(state), state), state)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros((2, 3), np.float32)}, r"missing \['b'\], unknown nothing"),
        (
            {"a": np.zeros((2, 3), np.float32), "b": np.zeros(1, np.float32), "z": np.zeros(1)},
            r"missing nothing, unknown \['z'\]",
        ),
        (
            {"a": np.zeros((3, 2), np.float32), "b": np.zeros(1, np.float32)},
            r"a should be float32\[2, 3\], got float32\[3, 2\]",
        ),
        (
            {"a": np.zeros((2, 3), np.float64), "b": np.zeros(1, np.float32)},
            r"a should be float32\[2, 3\], got float64\[2, 3\]",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(arrays, message):
    like = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(1, np.float32)}
    with pytest.raises(checkpoint.CheckpointError, match=f"does not fit the model: {message}"):
        checkpoint.unflatten(arrays, like)


def test_an_earlier_step_can_be_saved_again_after_later_ones(tmp_path):
    _save(tmp_path / "c", [0.5, 0.4, 0.3], size=30)
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        store.save(2, _state(9, 30), {"note": "again"}, selection=0.1)
        best = store.restore_best()
    assert best.step == 2
    assert best.description["note"] == "again"


def test_a_reader_leaves_a_save_in_progress_alone(tmp_path):
    _save(tmp_path / "c", [0.5], size=30)
    unfinished = tmp_path / "c" / "7.orbax-checkpoint-tmp"
    unfinished.mkdir()
    with checkpoint.CheckpointStore(tmp_path / "c", read_only=True) as store:
        assert store.restore_best().step == 1
    assert unfinished.is_dir()


def test_a_save_that_fails_is_one_line_and_earlier_steps_are_kept(tmp_path, monkeypatch):
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        store.save(1, _state(1, 30), {}, selection=0.5)

        def full(*_, **__):
            raise OSError("No space left on device\nmany\nlines")

        monkeypatch.setattr(store._checkpointer, "save_checkpointables", full)
        with pytest.raises(checkpoint.CheckpointError, match=r"cannot save step 2 .*No space left.*kept") as e:
            store.save(2, _state(2, 30), {}, selection=0.4)
        assert "\n" not in str(e.value)
        assert store.restore_last().step == 1


def test_a_state_that_was_not_evaluated_is_never_the_best(tmp_path):
    with checkpoint.CheckpointStore(tmp_path / "c", keep_latest=1) as store:
        store.save(1, _state(1, 30), {}, selection=np.inf)
        assert store.restore_best() is None
        assert store.restore_last().step == 1
        store.save(2, _state(2, 30), {}, selection=7.0)
        store.save(3, _state(3, 30), {}, selection=np.inf)
        assert store.restore_best().step == 2
        assert store.restore_last().step == 3
        assert store.steps() == [2, 3]


def test_of_equal_states_the_latest_is_the_best(tmp_path):
    _save(tmp_path / "c", [0.5, 0.25, 0.25, 0.5], keep_latest=1, size=30)
    with checkpoint.CheckpointStore(tmp_path / "c") as store:
        assert store.steps() == [3, 4]
        assert store.restore_best().step == 3


def test_the_best_of_an_earlier_process_is_kept(tmp_path):
    _save(tmp_path / "c", [0.3, 0.1, 0.2], keep_latest=1, size=30)
    with checkpoint.CheckpointStore(tmp_path / "c", keep_latest=1) as store:
        store.save(4, _state(4, 30), {}, selection=0.4)
        assert store.steps() == [2, 4]
        store.save(5, _state(5, 30), {}, selection=0.05)
        assert store.steps() == [5]


def test_saving_goes_on_beside_a_checkpoint_with_a_damaged_description(tmp_path):
    _save(tmp_path / "c", [0.3, 0.1], keep_latest=2, size=30)
    for path in (tmp_path / "c" / "2" / "description").rglob("*"):
        if path.is_file():
            path.write_bytes(b"[1]")
    with checkpoint.CheckpointStore(tmp_path / "c", keep_latest=2) as store:
        assert store.restore_best().step == 1
        store.save(3, _state(3, 30), {}, selection=0.2)
        assert store.restore_best().step == 3
        store.save(4, _state(4, 30), {}, selection=0.25)
        assert store.steps() == [3, 4]


def test_after_a_failed_save_nothing_unfinished_is_left_and_closing_raises_nothing_more(tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        (tmp_path / "c" / "2.orbax-checkpoint-tmp").mkdir()
        fail()

    def fail():
        raise OSError(28, "No space left on device")

    store = checkpoint.CheckpointStore(tmp_path / "c")
    monkeypatch.setattr(store._checkpointer, "save_checkpointables", full)
    monkeypatch.setattr(store._checkpointer, "close", fail)
    with pytest.raises(checkpoint.CheckpointError, match=r"cannot save step 2 .*No space left on device"), store:
        store.save(2, _state(2, 30), {}, selection=0.4)
    assert not list((tmp_path / "c").glob("*tmp*"))
    assert capsys.readouterr().err == ""
