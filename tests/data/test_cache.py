"""Generated data on disk: pieces are generated once, damage is detected, and a failure leaves nothing behind."""

import threading
from pathlib import Path

import numpy as np
import pytest

from ctfno_jax.data import cache
from ctfno_jax.data.trajectories import Trajectories

CHUNK = 3


def _trajectories(count: int, first: int) -> Trajectories:
    """Every sample holds its own number."""
    sample = np.arange(first, first + count, dtype=np.float32)
    u0 = np.broadcast_to(sample[:, None, None], (count, 4, 1)).copy()
    return Trajectories(u0, np.asarray([1.0, 2.0], np.float32), np.stack([u0 + 100, u0 + 200], axis=1))


class Generator:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, count: int, first: int) -> Trajectories:
        self.calls.append((count, first))
        return _trajectories(count, first)


def _load(folder: Path, num_samples: int, generate=None, **options) -> tuple[Trajectories, list]:
    generate = Generator() if generate is None else generate
    data = cache.load_or_generate(generate, folder, num_samples, CHUNK, **options)
    return data, getattr(generate, "calls", [])


def _assert_same(data: Trajectories, expected: Trajectories) -> None:
    for name in ("u0", "times", "u"):
        np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))
        assert getattr(data, name).dtype == np.float32


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# --- pieces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_samples", [1, 3, 7])
def test_samples_come_from_whole_pieces_and_the_second_time_from_disk(tmp_path, num_samples):
    data, calls = _load(tmp_path / "data", num_samples)
    _assert_same(data, _trajectories(num_samples, 0))
    assert calls == [(CHUNK, first) for first in range(0, num_samples, CHUNK)]
    again, calls = _load(tmp_path / "data", num_samples)
    _assert_same(again, data)
    assert calls == []


def test_more_samples_need_only_the_missing_pieces(tmp_path):
    _load(tmp_path, 4)
    data, calls = _load(tmp_path, 8)
    assert calls == [(CHUNK, 6)]
    _assert_same(data, _trajectories(8, 0))
    assert _load(tmp_path, 2)[1] == []


def test_an_interrupted_generation_goes_on_where_it_stopped(tmp_path):
    def fails_later(count: int, first: int) -> Trajectories:
        if first >= 6:
            raise KeyboardInterrupt
        return _trajectories(count, first)

    with pytest.raises(KeyboardInterrupt):
        _load(tmp_path, 9, fails_later)
    assert _names(tmp_path) == ["000000-0003.npz", "000003-0003.npz"]
    assert _load(tmp_path, 9)[1] == [(CHUNK, 6)]


@pytest.mark.parametrize(("first", "num_samples", "starts"), [(3, 4, [3, 6]), (4, 2, [3]), (7, 4, [6, 9]), (0, 3, [0])])
def test_pieces_before_the_first_sample_are_neither_generated_nor_read(tmp_path, first, num_samples, starts):
    told = []
    data, calls = _load(tmp_path, num_samples, first=first, progress=lambda *p: told.append(p))
    _assert_same(data, _trajectories(num_samples, first))
    assert calls == [(CHUNK, start) for start in starts]
    assert told[-1] == (num_samples, num_samples)
    # A damaged piece that only holds earlier samples is not noticed; all samples together are the same ones.
    (tmp_path / "000000-0003.npz").write_text("damaged")
    assert _load(tmp_path, num_samples, first=first)[1] == ([(CHUNK, 0)] if first < CHUNK else [])
    _assert_same(_load(tmp_path, 12)[0], _trajectories(12, 0))


def test_progress_is_told_after_every_piece_that_was_made(tmp_path):
    _load(tmp_path, 3)
    told = []
    _load(tmp_path, 8, progress=lambda ready, of: told.append((ready, of)))
    assert told == [(6, 8), (8, 8)]
    _load(tmp_path, 8, progress=lambda ready, of: told.append((ready, of)))
    assert len(told) == 2


# --- damage -------------------------------------------------------------------------------------------------------


def _piece(folder: Path) -> Path:
    path = folder / "000000-0003.npz"
    cache.write(path, _trajectories(CHUNK, 0))
    return path


def test_a_damaged_byte_anywhere_is_found_or_harmless(tmp_path):
    path = _piece(tmp_path)
    content, expected = path.read_bytes(), _trajectories(CHUNK, 0)
    found = 0
    for position in range(0, len(content), 23):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        piece = cache.read(path)
        found += piece is None
        if piece is not None:  # such as the date of an entry
            _assert_same(piece, expected)
    assert found > 0


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
def test_a_piece_that_was_cut_is_made_again(tmp_path, kept):
    path = _piece(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert cache.read(path) is None
    data, calls = _load(tmp_path, 3)
    assert calls == [(CHUNK, 0)]
    _assert_same(data, _trajectories(3, 0))
    assert _load(tmp_path, 3)[1] == []


def test_only_the_damaged_piece_is_made_again(tmp_path):
    _load(tmp_path, 9)
    path = tmp_path / "000003-0003.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    data, calls = _load(tmp_path, 9)
    assert calls == [(CHUNK, 3)]
    _assert_same(data, _trajectories(9, 0))


@pytest.mark.parametrize("name", ["u0", "times", "u", "digest"])
def test_arrays_that_do_not_have_the_digest_that_was_written_are_refused(tmp_path, name):
    path = _piece(tmp_path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays)
    assert cache.read(path) is not None
    arrays[name] = arrays[name] + np.ones((), arrays[name].dtype)
    np.savez(path, **arrays)
    assert cache.read(path) is None


def test_another_precision_or_a_missing_array_is_not_what_was_written(tmp_path):
    path = _piece(tmp_path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "u": arrays["u"].astype(np.float64)})
    assert cache.read(path) is None
    np.savez(path, **{name: arrays[name] for name in ("u0", "u", "digest")})
    assert cache.read(path) is None


class Harmful:
    """Leaves a mark when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_nothing_is_ever_unpickled(tmp_path):
    path, mark = _piece(tmp_path), tmp_path / "mark"
    np.savez(path, u0=np.asarray([Harmful(mark)], object), times=np.ones(1), u=np.ones(1), digest=np.ones(1))
    assert cache.read(path) is None
    assert _load(tmp_path, 3)[1] == [(CHUNK, 0)]
    assert not mark.exists()


# --- failures -----------------------------------------------------------------------------------------------------


def test_a_failing_generator_leaves_no_file(tmp_path):
    def fails(count: int, first: int) -> Trajectories:
        raise ValueError("blew up")

    with pytest.raises(ValueError, match="blew up"):
        _load(tmp_path / "data", 3, fails)
    assert _names(tmp_path / "data") == []


def test_a_full_disk_is_one_line_that_names_the_remedy_and_keeps_the_old_piece(tmp_path, monkeypatch):
    path = _piece(tmp_path)
    before = path.read_bytes()

    def full(file, **arrays) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match=r"cannot keep .*: No space left on device; .* set CTFNO_CACHE_DIR") as caught:
        cache.write(path, _trajectories(CHUNK, 3))
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    with pytest.raises(OSError, match="CTFNO_CACHE_DIR"):
        _load(tmp_path / "other", 3)
    assert _names(tmp_path) == ["000000-0003.npz", "other"]
    assert _names(tmp_path / "other") == []


def test_an_interruption_while_writing_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupted(file, **arrays) -> None:
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.write(tmp_path / "piece.npz", _trajectories(CHUNK, 0))
    assert _names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"cannot keep generated data in .*; free space there or set CTFNO_CACHE_DIR"):
        cache.write(tmp_path / "file" / "data" / "piece.npz", _trajectories(CHUNK, 0))


def test_small_texts_are_written_whole(tmp_path):
    cache.write_text(tmp_path / "new" / "note.json", "0.25")
    cache.write_text(tmp_path / "new" / "note.json", "0.5")
    assert (tmp_path / "new" / "note.json").read_text() == "0.5"
    assert _names(tmp_path / "new") == ["note.json"]


# --- two at once --------------------------------------------------------------------------------------------------


def test_two_threads_at_once_end_with_intact_data(tmp_path, monkeypatch):
    both_writing, save = threading.Barrier(2), np.savez

    def save_together(file, **arrays) -> None:
        both_writing.wait(timeout=30)
        save(file, **arrays)

    monkeypatch.setattr(np, "savez", save_together)
    errors: list[Exception] = []

    def work() -> None:
        try:
            cache.write(tmp_path / "piece.npz", _trajectories(CHUNK, 0))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    piece = cache.read(tmp_path / "piece.npz")
    assert piece is not None
    _assert_same(piece, _trajectories(CHUNK, 0))
    assert _names(tmp_path) == ["piece.npz"]


# --- folders ------------------------------------------------------------------------------------------------------


def test_the_folder_is_the_one_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CTFNO_CACHE_DIR", str(tmp_path / "mine"))
    assert cache.directory() == tmp_path / "mine"
    assert cache.folder_of("heat", 0, {}).parent == tmp_path / "mine"
    monkeypatch.delenv("CTFNO_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache.directory() == tmp_path / "user" / "ctfno_jax" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.directory() == tmp_path / "home" / ".cache" / "ctfno_jax" / "data"


def test_every_name_seed_and_option_has_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CTFNO_CACHE_DIR", str(tmp_path))
    options = {"viscosity": 0.1, "num_points": 16}
    folders = [
        cache.folder_of("burgers", 0, options),
        cache.folder_of("heat", 0, options),
        cache.folder_of("burgers", 1, options),
        cache.folder_of("burgers", 0, {**options, "viscosity": 0.2}),
        cache.folder_of("burgers", 0, {**options, "num_points": 32}),
        cache.folder_of("burgers", 0, {**options, "sigma": 7.0}),
    ]
    assert len(set(folders)) == len(folders)
    assert cache.folder_of("burgers", 0, dict(reversed(options.items()))) == folders[0]
    monkeypatch.setattr(cache, "_VERSION", cache._VERSION + 1)
    assert cache.folder_of("burgers", 0, options) not in folders


# --- named arrays -------------------------------------------------------------------------------------------------


def test_named_arrays_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "new" / "pool.npz"
    assert cache.read_arrays(path) is None
    written = {"times": np.arange(5, dtype=np.int32), "values": np.ones((2, 3), np.float32)}
    cache.write_arrays(path, written)
    read = cache.read_arrays(path)
    assert read is not None
    assert read.keys() == written.keys()
    for name, array in written.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype


def test_changed_renamed_or_cut_arrays_are_refused(tmp_path):
    path = tmp_path / "pool.npz"
    cache.write_arrays(path, {"times": np.arange(5), "values": np.ones(3)})
    with np.load(path) as file:
        arrays = dict(file)
    content = path.read_bytes()
    np.savez(path, **{**arrays, "values": 2 * arrays["values"]})
    assert cache.read_arrays(path) is None
    np.savez(path, **{"time" if name == "times" else name: array for name, array in arrays.items()})
    assert cache.read_arrays(path) is None
    path.write_bytes(content[:-40])
    assert cache.read_arrays(path) is None
    path.write_bytes(content)
    assert cache.read_arrays(path) is not None
