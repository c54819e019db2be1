"""Odd extension: sines plus a line are represented exactly, on any grid, with the boundaries in the right place."""

import numpy as np
import pytest

from ctfno_jax.data import problems
from ctfno_jax.solvers import diffusion_sorption
from ctfno_jax.transforms.odd_extension import OddExtension


def _extension(num_points: int) -> OddExtension:
    return OddExtension(left=2.0, right=-0.5, right_slip=0.03, num_points=num_points)


def _field(x: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """The line between the boundary values plus ``sum_k b_k sin(k pi x)``."""
    k = np.arange(1, len(coefficients) + 1)
    return 2.0 - 2.5 * x + np.sin(np.pi * np.outer(x, k)) @ coefficients


@pytest.mark.parametrize(("num_data", "num_points"), [(50, 16), (51, 17), (20, 24)])
def test_sines_plus_a_line_are_encoded_and_decoded_exactly(num_data, num_points):
    extension = _extension(num_points)
    coefficients = np.random.default_rng(0).standard_normal((2, 3, (num_points - 1) // 2))
    u = np.stack([[_field(extension.centres(num_data), b) for b in sample] for sample in coefficients])[..., None]
    encoded = extension.encode_solution(u.astype(np.float32))
    assert encoded.shape == (2, 3, num_points, 1)
    # Boundaries at 0 and 1; the points beyond 1 are the reflected half.
    x = 2 * np.arange(num_points) / num_points
    expected = [[_field(x, b) - (2.0 - 2.5 * x) for b in sample] for sample in coefficients]
    np.testing.assert_allclose(encoded[..., 0], expected, atol=3e-5)
    np.testing.assert_allclose(extension.decode(encoded, (num_data,)), u, atol=3e-5)
    # The same sines on another grid.
    other = np.stack([[_field(extension.centres(37), b) for b in sample] for sample in coefficients])[..., None]
    np.testing.assert_allclose(extension.decode(encoded, (37,)), other, atol=3e-5)


def test_boundaries_lie_one_cell_beyond_the_centres_plus_the_slip():
    x = _extension(16).centres(10)
    cell = x[1] - x[0]
    assert x[0] == pytest.approx(cell)
    assert 1 - x[-1] == pytest.approx(cell + 0.03 * 10 * cell)


def test_decoding_ignores_the_even_part():
    extension, rng = _extension(16), np.random.default_rng(1)
    u = rng.standard_normal((1, 2, 16, 3)).astype(np.float32)
    even = np.cos(2 * np.pi * np.outer(np.arange(16) / 16, np.arange(9))) @ rng.standard_normal((9, 3))
    with_even = u + even.astype(np.float32)
    np.testing.assert_allclose(extension.decode(with_even, (30,)), extension.decode(u, (30,)), atol=1e-5)


def test_an_encoded_state_holds_the_odd_extension_the_even_one_and_a_cosine():
    extension = _extension(20)
    u0 = np.stack([np.full((3, 40), 0.7), np.full((3, 40), -1.2)], axis=-1).astype(np.float32)
    state = extension.encode(u0)
    assert state.shape == (3, 20, 5)
    np.testing.assert_allclose(state[:, None, :, :2], extension.encode_solution(u0[:, None]), atol=1e-6)
    np.testing.assert_allclose(state[..., 2], 0.7, rtol=1e-5)
    np.testing.assert_allclose(state[..., 3], -1.2, rtol=1e-5)
    np.testing.assert_allclose(state[0, :, 4], np.cos(2 * np.pi * np.arange(20) / 20), atol=1e-6)


@pytest.mark.parametrize("num_data", [12, 33])
def test_gain_is_the_product_of_the_norms_of_the_linear_parts(num_data):
    """Both maps are affine: their matrices are the images of unit vectors, less those of zero."""
    extension, encoded = _extension(20), []
    for states in (np.eye(num_data), np.zeros((1, num_data))):
        encoded.append(np.asarray(extension.encode(states[..., None].astype(np.float32))).reshape(len(states), -1))
    decoded = [extension.decode(u[:, None, :, None], (num_data,))[:, 0, :, 0] for u in (np.eye(20), np.zeros((1, 20)))]
    norms = [np.linalg.norm(images - zero, 2) for images, zero in (encoded, decoded)]
    assert extension.gain((num_data,)) == pytest.approx(norms[0] * norms[1], rel=1e-4)


@pytest.mark.parametrize("num_data", [8, 9, 30, 64, 200])
def test_gain_is_small_on_every_grid(num_data):
    assert OddExtension(1.0, 0.0, 5e-4, 64).gain((num_data,)) < 2


@pytest.mark.parametrize("shape", [(2, 7, 1), (2, 16), (2, 8, 8, 1)])
def test_states_with_other_than_one_space_axis_are_refused(shape):
    with pytest.raises(ValueError, match="the odd extension is for one space axis"):
        _extension(16).encode(np.zeros(shape, np.float32))


def test_wrong_grids_are_refused():
    extension = _extension(16)
    with pytest.raises(ValueError, match=r"one space axis of 8 points or more, got the grid \(9, 10\)"):
        extension.encoded_grid((9, 10))
    with pytest.raises(ValueError, match=r"u must be given on 16 points of the extension, got shape \(1, 2, 15, 1\)"):
        extension.decode(np.zeros((1, 2, 15, 1)), (30,))
    with pytest.raises(ValueError, match="num_points must be at least 8 and right_slip not negative, got 7 and"):
        OddExtension(1.0, 0.0, 0.0, 7)


def test_solutions_of_diffusion_sorption_are_a_few_sines_between_its_boundary_values():
    """With a boundary shifted by half a cell, the same number of sines has ten times the error."""
    u0 = np.repeat([[0.003], [0.19]], 128, axis=1)
    u = diffusion_sorption.solve(u0, np.array([100.0, 300.0]))[..., None].astype(np.float32)
    entry = problems.problem("diffusion_sorption")
    assert isinstance(entry, problems.FieldProblem)
    walls = entry.walls
    assert walls is not None

    def error(shift: float) -> float:
        extension = OddExtension(walls.left, walls.right, walls.right_slip + shift, 64)
        return float(np.sqrt(np.mean((extension.decode(extension.encode_solution(u), (128,)) - u) ** 2)))

    assert error(0.0) < 4e-6
    assert error(0.5 / 128) > 10 * error(0.0)
