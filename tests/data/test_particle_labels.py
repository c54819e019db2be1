"""Flows on the labels of their particles: closed forms, and what goes in comes out."""

import numpy as np
import pytest

from ctfno_jax.data import particle_labels


def _wave(num_cells: int, amplitude: float = 0.5):
    """Particles of a uniform gas at x = X + b sin(kX + 1): their labels at places x, and the stretch at labels X."""
    k = 2 * np.pi / num_cells
    b = amplitude / k
    place = lambda label: label + b * np.sin(k * label + 1)  # noqa: E731
    stretch = lambda label: 1 + amplitude * np.cos(k * label + 1)  # noqa: E731

    def label(x):
        result = np.array(x, np.float64)
        for _ in range(60):
            result = result - (place(result) - x) / stretch(result)
        return result

    return place, stretch, label


def _uniform_gas(num_cells: int):
    """Cell averages of the density of that gas, exactly: the mass between two places is the labels between them."""
    place, _, label = _wave(num_cells)
    edges = np.arange(num_cells + 1) - 0.5
    return np.ones(num_cells), np.diff(label(edges))[None], place


def _by_place(density: np.ndarray) -> particle_labels.Labels:
    return particle_labels.labels(density, np.ones_like(density))


@pytest.mark.parametrize("num_cells", [12, 13])
def test_a_flow_at_rest_is_seen_as_it_is(num_cells):
    rng = np.random.default_rng(0)
    density = 2 + np.cos(2 * np.pi * np.arange(num_cells) / num_cells)
    particles = _by_place(density)
    fields = rng.normal(size=(2, num_cells, 3))
    width, seen = particle_labels.follow(particles, np.stack([density, density]), fields)
    np.testing.assert_allclose(width, 1, atol=1e-12)
    np.testing.assert_allclose(seen, fields, atol=1e-12)
    np.testing.assert_allclose(particle_labels.initial_fields(particles, fields[0]), fields[0], atol=1e-12)
    on_grid, released = particle_labels.release(particles, np.ones((2, num_cells)), fields)
    np.testing.assert_allclose(on_grid, [density, density], atol=1e-12)
    np.testing.assert_allclose(released, fields, atol=1e-12)


@pytest.mark.parametrize("num_cells", [96, 97])
def test_particles_are_found_where_they_have_gone(num_cells):
    density0, density, place = _uniform_gas(num_cells)
    k = 2 * np.pi / num_cells
    cells = np.arange(num_cells)
    field = np.sin(2 * k * cells)[None, :, None]
    width, seen = particle_labels.follow(_by_place(density0), density, field)
    edges = place(np.arange(num_cells + 1) - 0.5)
    np.testing.assert_allclose(width[0], np.diff(edges), atol=5e-5)
    np.testing.assert_allclose(seen[0, :, 0], np.sin(2 * k * place(cells)), atol=5e-5)


@pytest.mark.parametrize("num_cells", [96, 97])
def test_particles_are_put_where_they_belong(num_cells):
    density0, density, place = _uniform_gas(num_cells)
    k = 2 * np.pi / num_cells
    cells = np.arange(num_cells)
    width = np.diff(place(np.arange(num_cells + 1) - 0.5))[None]
    at_particles = np.sin(2 * k * place(cells))[None, :, None]
    on_grid, fields = particle_labels.release(_by_place(density0), width, at_particles)
    np.testing.assert_allclose(on_grid, density, atol=1e-4)
    np.testing.assert_allclose(fields[0, :, 0], np.sin(2 * k * cells), atol=1e-4)


def test_the_error_of_the_widths_falls_with_the_third_power_of_the_cells():
    errors = []
    for num_cells in (64, 128):
        density0, density, place = _uniform_gas(num_cells)
        width, _ = particle_labels.follow(_by_place(density0), density, np.zeros((1, num_cells, 1)))
        errors.append(np.abs(width[0] - np.diff(place(np.arange(num_cells + 1) - 0.5))).max())
    assert 2.7 < np.log2(errors[0] / errors[1]) < 5


@pytest.mark.parametrize("num_cells", [64, 65])
def test_labels_grow_with_their_weight(num_cells):
    """Labels of weight dX/ds' inverse are those of a known map: the wave's own labels, seen from its places."""
    place, width, label = _wave(num_cells)
    edges = np.arange(num_cells + 1) - 0.5
    particles = particle_labels.labels(np.full(num_cells, 3.0), np.diff(label(edges)))
    first = label(-0.5) + 0.5  # labels are counted from the left edge of the domain
    at = np.arange(num_cells) + first
    np.testing.assert_allclose(particles.position, place(at), atol=1e-4)
    np.testing.assert_allclose(particles.width, width(at), atol=2e-3)
    np.testing.assert_allclose(particles.mass, 3 * particles.width, rtol=1e-12)
    np.testing.assert_allclose(particles.mass_before, 3 * (particles.position + 0.5), rtol=1e-12)


def test_mass_is_kept_whatever_the_widths():
    rng = np.random.default_rng(1)
    density0 = rng.uniform(0.2, 5, 50)
    width = np.exp(rng.normal(size=(7, 50)))
    density, _ = particle_labels.release(_by_place(density0), width, np.zeros((7, 50, 1)))
    np.testing.assert_allclose(density.sum(axis=1), density0.sum(), rtol=1e-12)


def test_the_scale_of_the_widths_does_not_matter():
    density0, _, place = _uniform_gas(40)
    width = np.diff(place(np.arange(41) - 0.5))[None]
    one, _ = particle_labels.release(_by_place(density0), width, np.zeros((1, 40, 1)))
    other, _ = particle_labels.release(_by_place(density0), 3 * width, np.zeros((1, 40, 1)))
    np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("weight", ["place", "mass", "other"])
@pytest.mark.parametrize("num_cells", [128, 129])
def test_release_undoes_follow_where_density_varies(num_cells, weight):
    x = 2 * np.pi * np.arange(num_cells) / num_cells
    density0 = 2 + np.cos(x)
    density = np.stack([2 + np.sin(x), 2 + 0.5 * np.cos(2 * x + 1)])
    fields = np.stack([np.sin(x), np.cos(3 * x)])[..., None]
    weights = {"place": np.ones(num_cells), "mass": density0, "other": 1.5 + np.sin(2 * x)}
    particles = particle_labels.labels(density0, weights[weight])
    width, seen = particle_labels.follow(particles, density, fields)
    np.testing.assert_allclose(width.mean(axis=1), 1, rtol=1e-12)
    on_grid, released = particle_labels.release(particles, width, seen)
    np.testing.assert_allclose(on_grid, density, atol=5e-3)
    np.testing.assert_allclose(released, fields, atol=5e-3)


def test_a_jump_of_density_rests_at_its_label():
    """Two gases, the left one compressed: the jump has moved on the grid, not among the labels."""
    num_cells = 200
    cells = np.arange(num_cells)
    density0 = np.where(cells < 100, 4.0, 1.0)
    particles = _by_place(density0)
    width = np.where(cells < 100, 0.8, 1.2)[None]
    density, _ = particle_labels.release(particles, width, np.zeros((1, num_cells, 1)))
    assert np.count_nonzero(density > 2.5) == pytest.approx(80, abs=1)
    np.testing.assert_allclose(np.sort(density[0])[[10, -10]], [1 / 1.2, 4 / 0.8], rtol=0.02)
    seen, _ = particle_labels.follow(particles, density, np.zeros((1, num_cells, 1)))
    np.testing.assert_allclose(seen[0, 20:80], 0.8, atol=1e-3)
    np.testing.assert_allclose(seen[0, 120:180], 1.2, atol=1e-3)
