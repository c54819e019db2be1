"""Classifiers: published sizes, resolution, bounds on their weights, and the certificate of the Fourier classifier."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.parameters import random_parameters

from ctfno_jax.certify_classifier import classifier_lipschitz, estimated_classifier_lipschitz
from ctfno_jax.models import registry
from ctfno_jax.models.classifiers import CNN, FNOClassifier, ImageANODE
from ctfno_jax.models.ctfno import num_parameters
from ctfno_jax.ops.lipschitz import GELU_SLOPE

MNIST, CIFAR = (28, 28, 1), (32, 32, 3)
SMALL = {"num_classes": 4, "width": 6, "modes": (2, 3), "depth": 2, "num_blocks": 3}


def initial(model, shape, seed=0):
    return jax.jit(model.init)(jax.random.key(seed), jnp.zeros((1, *shape)))


@pytest.mark.parametrize(
    ("name", "fields", "shape", "count", "printed"),
    [
        ("fno_classifier", {}, MNIST, 67_114, 66),
        ("fno_classifier", {"width": 64, "num_blocks": 16, "padding": 0.125}, CIFAR, 156_874, 153),
        ("cnn", {}, MNIST, 79_882, 78),
        ("cnn", {"width": 64, "kernels": [7, 3, 3, 3, 3]}, CIFAR, 157_834, 154),
        ("image_anode", {}, MNIST, 85_462, 83),
        ("image_anode", {"augmented": 10}, CIFAR, 172_452, 168),
    ],
)
def test_published_sizes(name, fields, shape, count, printed):
    """The paper prints thousands of 1024."""
    model = registry.build_model(name, **fields)
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *shape)))
    assert num_parameters(params["params"]) == count
    assert abs(count / 1024 - printed) < 0.6


@pytest.mark.parametrize("method", ["matmul", "fft"])
def test_both_transforms_give_the_same_logits(method):
    model = FNOClassifier(**SMALL)
    images = jax.random.uniform(jax.random.key(1), (3, 10, 13, 2))
    params = random_parameters(model, images, scale=0.3, seed=2)
    expected = jax.jit(model.apply)(params, images)
    found = jax.jit(model.clone(fourier_method=method).apply)(params, images)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert expected.shape == (3, 4)
    assert float(jnp.ptp(expected)) > 1e-3


@pytest.mark.slow
def test_without_padding_and_coordinates_logits_do_not_change_with_a_shift_or_with_resolution():
    model = FNOClassifier(**SMALL, coordinates=False, padding=0.0)
    x, y = jnp.meshgrid(jnp.arange(16) / 16, jnp.arange(20) / 20, indexing="ij")
    smooth = lambda x, y: (0.5 + 0.2 * jnp.cos(2 * jnp.pi * x) + 0.1 * jnp.sin(2 * jnp.pi * (x + y)))[None, ..., None]  # noqa: E731
    params = random_parameters(model, smooth(x, y), scale=0.3, seed=3)
    here = model.apply(params, smooth(x, y))
    shifted = model.apply(params, jnp.roll(smooth(x, y), (5, 7), axis=(1, 2)))
    np.testing.assert_allclose(shifted, here, atol=1e-5)
    fine_x, fine_y = jnp.meshgrid(jnp.arange(64) / 64, jnp.arange(80) / 80, indexing="ij")
    np.testing.assert_allclose(model.apply(params, smooth(fine_x, fine_y)), here, atol=2e-3)


@pytest.mark.parametrize("rule", ["rows", "rows_and_columns"])
def test_bounded_weights_stay_inside_the_bound(rule):
    model = FNOClassifier(**SMALL, stability_bound=0.7, stability_rule=rule)
    params = random_parameters(model, jnp.zeros((1, 8, 9, 2)), scale=0.3, seed=4)
    weights = model.apply(params, 2, method="weights")
    for layer in weights.layers:
        for magnitude in (np.hypot(*layer.kernel), np.abs(layer.weight)):
            assert magnitude.sum(-2).max() <= 0.7 * (1 + 1e-6)
            if rule == "rows_and_columns":
                assert magnitude.sum(-1).max() <= 0.7 * (1 + 1e-6)
    free = model.clone(stability_bound=None).apply(params, 2, method="weights")
    assert np.hypot(*free.layers[0].kernel).sum(-2).max() > 0.7


@pytest.mark.slow
def test_a_bound_that_nothing_exceeds_changes_nothing():
    model = FNOClassifier(**SMALL)
    images = jax.random.uniform(jax.random.key(5), (2, 8, 9, 1))
    params = initial(model, (8, 9, 1))
    np.testing.assert_array_equal(model.clone(stability_bound=1e6).apply(params, images), model.apply(params, images))


@pytest.mark.parametrize("bound", [None, 1.2])
def test_no_pair_of_logits_changes_by_more_than_is_certified(bound):
    model = FNOClassifier(**SMALL, stability_bound=bound)
    shape = (9, 8, 2)
    params = random_parameters(model, jnp.zeros((1, *shape)), scale=0.3, seed=6)
    bounds = classifier_lipschitz(model, params, shape)
    np.testing.assert_array_equal(bounds, bounds.T)
    assert np.all(np.diag(bounds) == 0)
    cheap = classifier_lipschitz(model, params, shape, exact=False)
    assert np.all(cheap >= bounds * (1 - 1e-9))

    def jacobian(image):
        return jax.jacrev(lambda a: model.apply(params, a[None])[0])(image)

    steepest = np.zeros((4, 4))
    for image in jax.random.normal(jax.random.key(7), (20, *shape)):
        rows = np.asarray(jax.jit(jacobian)(image), np.float64).reshape(4, -1)
        steepest = np.maximum(steepest, np.linalg.norm(rows[:, None] - rows[None], axis=-1))
    off = ~np.eye(4, dtype=bool)
    assert np.all(steepest[off] <= bounds[off])
    assert np.all(steepest[off] > 0.003 * bounds[off])


@pytest.mark.slow
def test_the_estimate_for_training_is_the_product_of_the_norms_of_all_stages():
    model = FNOClassifier(**SMALL, coordinates=False)
    shape = (9, 8, 2)
    params = random_parameters(model, jnp.zeros((1, *shape)), scale=0.3, seed=9)
    weights = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.apply(params, 2, method="weights"))
    norm = lambda matrices: np.linalg.svd(matrices, compute_uv=False).max()  # noqa: E731
    product = norm(weights.lifting[:2]) * norm(weights.low_pass.re + 1j * weights.low_pass.im)
    for layer in weights.layers:
        kernel = (layer.kernel.re + 1j * layer.kernel.im).reshape(-1, 6, 6)
        product *= max(norm(layer.weight + kernel), norm(layer.weight))
    head = weights.head[0]
    expected = GELU_SLOPE**3 * product * np.linalg.norm(head[:, :, None] - head[:, None], axis=0) / np.sqrt(72)
    found = estimated_classifier_lipschitz(model, params, shape, num_iterations=200)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert np.all(np.asarray(found) >= classifier_lipschitz(model, params, shape) * (1 - 1e-3))
    few = estimated_classifier_lipschitz(model, params, shape)
    assert np.all(np.asarray(few) <= expected * (1 + 1e-5))
    gradient = jax.grad(lambda p: estimated_classifier_lipschitz(model, p, shape).sum())(params)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


@pytest.mark.slow
def test_a_certificate_shrinks_with_the_resolution():
    """The same image on four times the pixels has twice the norm, so logits grow half as fast with it."""
    model = FNOClassifier(**SMALL)
    params = initial(model, (8, 8, 1))
    coarse, fine = (classifier_lipschitz(model, params, (n, n, 1)) for n in (8, 16))
    np.testing.assert_allclose(fine, coarse / 2, rtol=1e-6)


def test_an_anode_without_a_field_is_a_linear_map_of_the_image():
    model = ImageANODE(num_classes=3, width=4, augmented=2, stepping="constant", solver="euler", step_size=0.5)
    images = jax.random.uniform(jax.random.key(8), (2, 5, 4, 1))
    params = jax.tree.map(jnp.copy, initial(model, (5, 4, 1)))
    params["params"]["kernel_2"] = jnp.zeros_like(params["params"]["kernel_2"])
    padded = jnp.pad(images, ((0, 0), (0, 0), (0, 0), (0, 2))).reshape(2, -1)
    dense = params["params"]["Dense_0"]
    np.testing.assert_allclose(model.apply(params, images), padded @ dense["kernel"] + dense["bias"], atol=1e-6)
    # A constant field moves every state by one in one unit of time.
    params["params"]["bias_2"] = jnp.ones(3)
    moved = (padded + 1) @ dense["kernel"] + dense["bias"]
    np.testing.assert_allclose(model.apply(params, images), moved, atol=1e-5)


def test_a_cnn_sees_the_whole_image_alike():
    """Away from the border, logits do not depend on where a thing is."""
    model = CNN(num_classes=3, width=4, kernels=(3, 3))
    image = jnp.zeros((1, 16, 15, 1)).at[0, 5:8, 4:7].set(1.0)
    params = initial(model, (16, 15, 1))
    np.testing.assert_allclose(
        model.apply(params, jnp.roll(image, (3, 4), (1, 2))), model.apply(params, image), atol=1e-6
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"modes": (6,)}, "modes must name the two axes"),
        ({"width": 30}, "width=30 must be divisible by num_blocks=8"),
        ({"padding": -0.1}, "padding must be a fraction"),
        ({"stability_bound": 0.0}, "stability_bound must be positive"),
        ({"stability_rule": "columns"}, "stability_rule must be one of"),
    ],
)
def test_fields_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        registry.build_model("fno_classifier", **fields)


@pytest.mark.parametrize("name", ["fno_classifier", "cnn", "image_anode"])
def test_what_is_no_batch_of_images_is_refused(name):
    model = registry.build_model(name)
    with pytest.raises(ValueError, match=r"images must have the axes \(batch, height, width, channels\)"):
        model.init(jax.random.key(0), jnp.zeros((28, 28, 1)))
    with pytest.raises(ValueError, match="images must hold real numbers"):
        model.init(jax.random.key(0), jnp.zeros((1, 28, 28, 1), jnp.complex64))
