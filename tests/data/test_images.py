"""Labelled images: refusals, the seeded split, and resampling against closed forms."""

import jax
import numpy as np
import pytest

from ctfno_jax.data import images
from ctfno_jax.data.images import ImageDataset, Images, Published

FACTS = Published("tiles", (4, 5, 3), train_counts=(9, 11), test_counts=(3, 4))


def _arrays(count=6, height=4, width=5, channels=3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "images": rng.random((count, height, width, channels)).astype(np.float32),
        "labels": (np.arange(count) % 3).astype(np.int32),
    }


def _bytes(counts: tuple[int, ...], shape=FACTS.shape) -> images.Bytes:
    """Images of one byte value each, which is the number of the image."""
    labels = np.repeat(np.arange(len(counts), dtype=np.uint8), counts)
    pixels = np.broadcast_to(np.arange(len(labels), dtype=np.uint8)[:, None, None, None], (len(labels), *shape))
    return np.ascontiguousarray(pixels), labels


def _split(**settings) -> ImageDataset:
    train, test = _bytes(FACTS.train_counts), _bytes(FACTS.test_counts)
    return images.split(FACTS, train, test, "by hand", **{"seed": 1, "num_validation": 6, **settings})


def _numbers(part: Images) -> list[int]:
    return np.rint(part.images[:, 0, 0, 0] * 255).astype(int).tolist()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 4, 5), (6, 3, 4, 5), (6, 4, 5, 2), (6, 4, 5, 3, 1)])
def test_a_wrong_rank_or_number_of_channels_is_refused(shape):
    message = (
        r"images must have shape \(count, height, width, channels\) with 1 or 3 channels, got \(6, .*; move or add"
    )
    with pytest.raises(ValueError, match=message):
        Images(np.zeros(shape, np.float32), np.zeros(6, np.int32))


@pytest.mark.parametrize("shape", [(0, 4, 5, 1), (2, 0, 5, 1)])
def test_an_empty_set_is_refused(shape):
    with pytest.raises(ValueError, match=r"at least one image with at least one pixel, got shape \("):
        Images(np.zeros(shape, np.float32), np.zeros(shape[0], np.int32))


def test_every_image_has_one_label():
    for shape in ((5,), (6, 1), ()):
        with pytest.raises(ValueError, match=r"labels must have shape \(6,\) to agree with images \(6, 4, 5, 3\), got"):
            Images(_arrays()["images"], np.zeros(shape, np.int32))


@pytest.mark.parametrize(
    ("name", "dtype", "remedy"),
    [("images", np.uint8, "divide bytes by 255"), ("images", np.float64, "divide"), ("labels", np.int64, "convert")],
)
def test_other_dtypes_are_refused(name, dtype, remedy):
    arrays = _arrays()
    arrays[name] = arrays[name].astype(dtype)
    with pytest.raises(ValueError, match=f"{name} must be of dtype .*, got {np.dtype(dtype)}; {remedy}"):
        Images(**arrays)


@pytest.mark.parametrize("value", [-0.01, 1.01, 255.0, np.nan, np.inf, -np.inf])
def test_pixels_outside_of_the_unit_interval_are_refused(value):
    arrays = _arrays()
    arrays["images"][3, 1, 2, 0] = value
    with pytest.raises(ValueError, match=r"images must lie in \[0, 1\], got values from .*; scale them"):
        Images(**arrays)


def test_labels_are_classes_from_zero_to_their_number():
    arrays = _arrays()
    part = Images(**arrays)
    assert ImageDataset("tiles", part, part, None, 3, {}, "by hand").num_classes == 3
    with pytest.raises(ValueError, match="labels of train must be below num_classes=2, got 2"):
        ImageDataset("tiles", part, part, None, 2, {}, "by hand")
    arrays["labels"][1] = -1
    with pytest.raises(ValueError, match="labels must count classes from 0 on, got -1"):
        Images(**arrays)


def test_parts_of_a_data_set_have_one_image_size():
    part, other = Images(**_arrays()), Images(**_arrays(width=7))
    with pytest.raises(ValueError, match=r"same height, .*train \(4, 5, 3\), validation \(4, 5, 3\), test \(4, 7, 3\)"):
        ImageDataset("tiles", part, part, other, 3, {}, "by hand")


def test_bytes_are_divided_by_255_and_nothing_else_is_taken_for_bytes():
    pixels = np.arange(256, dtype=np.uint8).reshape(2, 8, 16, 1)
    made = Images.from_bytes(pixels, np.asarray([0, 9], np.uint8))
    np.testing.assert_array_equal(np.rint(made.images * 255), pixels)
    assert (made.images.min(), made.images.max(), made.shape) == (0, 1, (8, 16, 1))
    assert made.labels.tolist() == [0, 9]
    with pytest.raises(ValueError, match="images must be bytes of dtype uint8, got int64"):
        Images.from_bytes(pixels.astype(np.int64), np.zeros(2, np.uint8))


def test_selection_keeps_images_and_labels_together():
    whole = Images(**_arrays())
    some = whole.select(np.asarray([4, 1]))
    assert len(some) == 2
    np.testing.assert_array_equal(some.images, whole.images[[4, 1]])
    assert some.labels.tolist() == [1, 1]
    assert len(whole.select(slice(2))) == 2


# --- the split --------------------------------------------------------------------------------------------------------


def test_training_and_validation_images_are_all_official_training_images_once():
    data = _split()
    assert sorted(_numbers(data.train) + _numbers(data.validation)) == list(range(20))
    assert (len(data.train), len(data.validation)) == (14, 6)
    for part in (data.train, data.validation):
        assert part.labels.tolist() == [int(number >= 9) for number in _numbers(part)]
    assert data.test is not None
    assert _numbers(data.test) == list(range(7))
    assert (data.name, data.num_classes, data.source) == ("tiles", 2, "by hand")


def test_the_validation_set_depends_on_the_seed_only():
    data, same, other = _split(), _split(num_train=3, num_test=2), _split(seed=2)
    assert _numbers(same.validation) == _numbers(data.validation) != _numbers(other.validation)
    assert _numbers(same.train) == _numbers(data.train)[:3]
    assert same.test is not None
    assert _numbers(same.test) == [0, 1]


def test_statistics_are_of_the_training_images():
    rng = np.random.default_rng(3)
    train = (rng.integers(0, 256, (20, 4, 5, 3), dtype=np.uint8), _bytes(FACTS.train_counts)[1])
    data = images.split(FACTS, train, None, "by hand", seed=1, num_validation=6)
    assert data.test is None
    assert (data.info["train"], data.info["validation"], "test" in data.info) == (14, 6, False)
    for channel in range(3):
        values = data.train.images[..., channel].astype(np.float64)
        np.testing.assert_allclose(data.info[f"mean_{channel}"], values.mean(), rtol=1e-6)
        np.testing.assert_allclose(data.info[f"std_{channel}"], values.std(), rtol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_train": 15}, "has 20 training images, but num_train=15 and num_validation=6 were asked for; lower one"),
        ({"num_validation": 20}, "has 20 training images, but num_train=1 and num_validation=20"),
        ({"num_test": 8}, "has 7 test images, num_test=8; lower it"),
        ({"num_train": 0}, "num_train of tiles must be a whole number of at least 1, got 0"),
        ({"num_validation": 0}, "num_validation of tiles must be a whole number of at least 1, got 0"),
        ({"num_validation": None}, "num_validation of tiles must be a whole number"),
        ({"num_test": 1.5}, "num_test of tiles must be a whole number of at least 1, got 1.5"),
        ({"num_train": True}, "num_train of tiles must be a whole number of at least 1, got True"),
    ],
)
def test_numbers_that_the_data_set_does_not_have_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        _split(**sizes)


def test_images_must_have_the_published_shape_and_label_counts():
    train, test = _bytes(FACTS.train_counts), _bytes(FACTS.test_counts)
    settings = {"seed": 1, "num_validation": 6}
    with pytest.raises(ValueError, match=r"train labels of tiles must occur \(9, 11\) times, got \(10, 10\)"):
        images.split(FACTS, _bytes((10, 10)), test, "by hand", **settings)
    with pytest.raises(ValueError, match=r"test labels of tiles must occur \(3, 4\) times, got \(3, 3, 1\)"):
        images.split(FACTS, train, _bytes((3, 3, 1)), "by hand", **settings)
    with pytest.raises(ValueError, match=r"test images of tiles must have shape \(7, 4, 5, 3\) .*, got \(8, 4, 5, 3\)"):
        images.split(FACTS, train, _bytes((4, 4)), "by hand", **settings)
    with pytest.raises(ValueError, match=r"train images of tiles must have shape \(20, 4, 5, 3\) .*\(20, 5, 4, 3\)"):
        images.split(FACTS, _bytes((9, 11), (5, 4, 3)), test, "by hand", **settings)


# --- resampling -------------------------------------------------------------------------------------------------------


def _centres(size: int) -> np.ndarray:
    """Centres of the pixels of the unit interval."""
    return (np.arange(size) + 0.5) / size


@pytest.mark.parametrize("method", images.METHODS)
def test_factor_one_is_the_identity(method):
    pixels = _arrays()["images"]
    np.testing.assert_array_equal(images.upsampled(pixels, 1, method), pixels)


@pytest.mark.parametrize("method", images.METHODS)
@pytest.mark.parametrize(("height", "width", "factor"), [(4, 5, 2), (7, 6, 3), (1, 2, 4)])
def test_constants_stay_constants(method, height, width, factor):
    fine = images.upsampled(np.full((2, height, width, 3), 0.7, np.float32), factor, method)
    assert fine.shape == (2, factor * height, factor * width, 3)
    np.testing.assert_allclose(fine, 0.7, rtol=1e-6)


@pytest.mark.parametrize("size", [5, 6, 9, 12])
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_a_band_limited_function_is_reproduced_at_the_finer_centres(size, factor):
    """All frequencies below the Nyquist frequency, with amplitudes and phases of their own."""
    rng = np.random.default_rng(size)
    amplitude, phase = rng.normal(size=(2, (size + 1) // 2))
    waves = lambda x: np.sum(amplitude * np.cos(2 * np.pi * np.arange(len(amplitude)) * x[:, None] + phase), 1)  # noqa: E731
    matrix = images.interpolation_matrix(size, factor, "fourier")
    np.testing.assert_allclose(matrix @ waves(_centres(size)), waves(_centres(factor * size)), atol=1e-12)


@pytest.mark.parametrize("factor", [2, 3])
def test_the_nyquist_frequency_is_continued_as_a_cosine_about_the_coarse_centres(factor):
    size = 6
    coarse = (-1.0) ** np.arange(size)
    position = size * _centres(factor * size) - 0.5
    expected = np.cos(np.pi * position)
    matrix = images.interpolation_matrix(size, factor, "fourier")
    np.testing.assert_allclose(matrix @ coarse, expected, atol=1e-12)


@pytest.mark.parametrize("size", [5, 6])
def test_an_odd_factor_keeps_the_values_at_the_coarse_centres(size):
    for method in images.METHODS:
        matrix = images.interpolation_matrix(size, 3, method)
        np.testing.assert_allclose(matrix[1::3], np.eye(size), atol=1e-12)


def test_fields_of_two_variables_are_reproduced_with_rows_columns_and_channels_in_place():
    def field(height, width):
        y, x = 2 * np.pi * _centres(height)[:, None], 2 * np.pi * _centres(width)
        waves = [np.cos(2 * y + 0.3) * np.sin(x), np.sin(y) + np.cos(3 * x - 1) + 0 * y, np.cos(y + 2 * x)]
        return np.stack([np.stack(waves, -1), np.stack(waves[::-1], -1)]).astype(np.float32)

    fine = images.upsampled(field(6, 9), 4, "fourier")
    np.testing.assert_allclose(fine, field(24, 36), atol=3e-6)


@pytest.mark.parametrize(("height", "width", "factor"), [(4, 5, 2), (7, 6, 3), (1, 3, 4)])
def test_bilinear_is_that_of_jax(height, width, factor):
    pixels = _arrays(2, height, width, 3)["images"]
    shape = (2, factor * height, factor * width, 3)
    expected = jax.image.resize(pixels, shape, "bilinear")
    np.testing.assert_allclose(images.upsampled(pixels, factor, "bilinear"), expected, atol=1e-6)


def test_the_methods_agree_on_smooth_images_to_second_order():
    """Half the pixel size, a quarter of the difference: both have their values at the same points."""
    differences = []
    for size in (32, 64):
        y, x = 2 * np.pi * _centres(size)[:, None], 2 * np.pi * _centres(size + 3)
        smooth = (0.5 + 0.4 * np.cos(y + 1) * np.cos(x - 2)).astype(np.float32)[None, ..., None]
        bilinear, fourier = (np.asarray(images.upsampled(smooth, 2, method)) for method in images.METHODS)
        # Beyond the outermost centres one continues constantly and the other periodically.
        differences.append(np.abs(bilinear - fourier)[:, 1:-1, 1:-1].max())
    assert differences[0] < 5e-3
    assert 3 < differences[0] / differences[1] < 5


def test_fourier_is_not_clipped_and_bilinear_stays_within_the_range():
    step = np.zeros((1, 8, 7, 1), np.float32)
    step[:, 4:] = 1
    bilinear, fourier = (np.asarray(images.upsampled(step, 4, method)) for method in images.METHODS)
    assert (bilinear.min(), bilinear.max()) == (0, 1)
    assert fourier.min() < -0.05
    assert fourier.max() > 1.05
    np.testing.assert_allclose(fourier.mean(), 0.5, atol=1e-6)


def test_resampling_can_be_jitted_and_is_linear():
    one, two = _arrays()["images"], _arrays()["images"][::-1]
    fine = jax.jit(lambda pixels: images.upsampled(pixels, 2, "fourier"))
    np.testing.assert_allclose(fine(one - 2 * two), fine(one) - 2 * fine(two), atol=3e-6)


def test_what_cannot_be_resampled_is_refused():
    pixels = _arrays()["images"]
    with pytest.raises(ValueError, match="method must be one of bilinear, fourier, got 'cubic'"):
        images.upsampled(pixels, 2, "cubic")
    for factor in (0, 1.5, True, -2):
        with pytest.raises(ValueError, match=f"factor must be a whole number of at least 1, got {factor}"):
            images.upsampled(pixels, factor)
    for wrong in (pixels[0], (255 * pixels).astype(np.uint8)):
        with pytest.raises(ValueError, match=r"shape \(batch, height, width, channels\) and a floating dtype, got"):
            images.upsampled(wrong, 2)
