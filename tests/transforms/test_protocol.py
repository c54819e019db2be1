"""What every transform promises: inverse, JAX transformations, gain, JSON; and that a chain is a composition."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ctfno_jax.transforms import protocol
from ctfno_jax.transforms.normalization import ChannelStatistics, Normalization
from ctfno_jax.transforms.odd_extension import OddExtension
from ctfno_jax.transforms.protocol import Chain, Transform

NUM_DATA, NUM_POINTS = 21, 16
ODD = OddExtension(left=1.0, right=0.25, right_slip=0.01, num_points=NUM_POINTS)
PLAIN = Normalization(ChannelStatistics((0.5,), (0.2,)), ChannelStatistics((-1.0,), (3.0,)))
ENCODED = Normalization(ChannelStatistics((0.1, 0.4, 0.0), (0.3, 0.5, 0.7)), ChannelStatistics((0.2,), (0.6,)))
TRANSFORMS: dict[str, Transform] = {
    "identity": Chain(()),
    "normalization": PLAIN,
    "odd extension": ODD,
    "chain": Chain((ODD, ENCODED)),
    "nested": Chain((Chain(()), Chain((ODD,)), ENCODED)),
}
SOME = pytest.mark.parametrize("name", [pytest.param("normalization", marks=pytest.mark.slow), "nested"])
EACH = pytest.mark.parametrize("transform", list(TRANSFORMS.values()), ids=list(TRANSFORMS))


def _solution(dtype: type = np.float32) -> np.ndarray:
    """``(batch, time, x, channels)``, in the range of the odd extension's sines."""
    x = ODD.centres(NUM_DATA)
    coefficients = np.random.default_rng(0).normal(size=(2, 3, 6))
    line = ODD.left * (1 - x) + ODD.right * x
    return (line + coefficients @ np.sin(np.pi * np.outer(np.arange(1, 7), x)))[..., None].astype(dtype)


@EACH
def test_decoding_undoes_encoding(transform):
    u = _solution()
    assert isinstance(transform, Transform)
    encoded = transform.encode_solution(u)
    assert encoded.shape == (2, 3, *transform.encoded_grid((NUM_DATA,)), 1)
    assert transform.encode(u[:, 0]).shape[1:-1] == transform.encoded_grid((NUM_DATA,))
    np.testing.assert_allclose(transform.decode(encoded, (NUM_DATA,)), u, atol=2e-5)


@SOME
def test_jit_vmap_and_float64_give_the_same(name):
    transform, u = TRANSFORMS[name], jnp.asarray(_solution())

    def through(u):
        state = transform.encode(u[:, 0])
        return state, transform.decode(transform.encode_solution(u) + state[:, None, :, :1], (NUM_DATA,))

    plain = through(u)
    for other in (jax.jit(through)(u), jax.tree.map(lambda a: a[0], jax.vmap(through)(u[None]))):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5), plain, other)
    with jax.enable_x64(True):
        double = through(jnp.asarray(_solution(np.float64)))
        assert {a.dtype for a in double} == {jnp.dtype("float64")}
        back = transform.decode(transform.encode_solution(_solution(np.float64)), (NUM_DATA,))
        np.testing.assert_allclose(back, _solution(np.float64), rtol=0, atol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=5e-5), plain, double)


@SOME
def test_gain_times_the_constant_of_the_network_bounds_the_operator_in_both_modes_of_differentiation(name):
    """For the network that returns twice the encoded field; its Lipschitz constant is 2."""
    transform = TRANSFORMS[name]

    def operator(u0):
        return transform.decode(2 * transform.encode(u0[None, :, None])[:, None, :, :1], (NUM_DATA,)).ravel()

    u0 = jnp.asarray(_solution()[0, 0, :, 0])
    forward, backward = jax.jacfwd(operator)(u0), jax.jacrev(operator)(u0)
    np.testing.assert_allclose(forward, backward, atol=1e-4)
    assert np.linalg.norm(forward, 2) <= 2 * transform.gain((NUM_DATA,)) * (1 + 1e-5)


def test_gain_is_attained_by_normalization_and_identity():
    """A network that reads the channel of smallest deviation and answers in that of largest deviation."""
    two = Normalization(ChannelStatistics((0.0, 5.0), (2.0, 0.25)), ChannelStatistics((1.0, 0.0), (3.0, 8.0)))
    assert two.gain((9,)) == 8.0 / 0.25
    bump = np.zeros((1, 9, 2), np.float32)
    bump[0, 4, 1] = 1e-2
    network = lambda u0: (two.encode(u0) - two.encode(0 * u0))[:, None]  # noqa: E731
    change = two.decode(network(bump), (9,)) - two.decode(network(0 * bump), (9,))
    assert np.linalg.norm(change) == pytest.approx(two.gain((9,)) * 1e-2, rel=1e-4)
    assert Chain(()).gain((9,)) == 1.0


def test_a_chain_is_the_composition_in_order_and_its_inverse_in_reverse_order():
    chain, u = TRANSFORMS["chain"], _solution()
    np.testing.assert_array_equal(chain.encode(u[:, 0]), ENCODED.encode(ODD.encode(u[:, 0])))
    np.testing.assert_array_equal(chain.encode_solution(u), ENCODED.encode_solution(ODD.encode_solution(u)))
    answer = np.random.default_rng(1).normal(size=(2, 3, NUM_POINTS, 1)).astype(np.float32)
    expected = ODD.decode(ENCODED.decode(answer, (NUM_POINTS,)), (NUM_DATA,))
    np.testing.assert_array_equal(chain.decode(answer, (NUM_DATA,)), expected)
    assert chain.encoded_grid((NUM_DATA,)) == (NUM_POINTS,)
    assert chain.gain((NUM_DATA,)) == pytest.approx(ODD.gain((NUM_DATA,)) * ENCODED.gain((NUM_POINTS,)))


@EACH
def test_the_dictionary_form_survives_json(transform):
    assert protocol.from_dict(json.loads(json.dumps(transform.to_dict()))) == transform
    assert hash(transform) == hash(protocol.from_dict(transform.to_dict()))


def test_an_unknown_kind_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown transform 'even'; known are chain, normalization, odd_extension"):
        protocol.from_dict({"kind": "even"})
