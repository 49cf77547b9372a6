"""The finite check of a compiled step on JAX, which looks at small gradients together."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="about JAX")

SMALL, LARGE = (5,), (150, 110)
# More of one shape than are looked at together, one of another, one without elements, and None.
SHAPES = [SMALL] * 20 + [(2, 3), (0,), None, LARGE, LARGE]
VALUES = {"inf": (np.inf, 1), "-inf": (-np.inf, 1), "nan": (np.nan, 2)}


def checked(gradients, scale, tell_each, jit=True):
    import jax
    import jax.numpy as jnp

    from keras_mp.backends.common.numerics import Update
    from keras_mp.backends.jax.checking import check

    variables = [
        keras.Variable(np.zeros((1,) if g is None else g.shape, "float32")) for g in gradients
    ]

    def look(gradients, scale):
        update = Update(None, gradients, variables, scale, [False] * len(gradients))
        return check(update, lambda g: g / scale, tell_each)

    given = [None if g is None else jnp.asarray(g) for g in gradients]
    found = (jax.jit(look) if jit else look)(given, jnp.float32(scale))
    return bool(found.finite), found.each, np.asarray(found.sums)


def ones(dtype="float32", fill=1.0):
    return [None if shape is None else np.full(shape, fill, dtype) for shape in SHAPES]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "dtype", [pytest.param("float32", marks=pytest.mark.essential), "float16", "bfloat16"]
)
def test_whichever_it_is_in(dtype, value):
    bad, kind = VALUES[value]
    dtype = keras.ops.convert_to_numpy(keras.ops.zeros((), dtype)).dtype
    for place in (0, 15, 16, 19, 20, 23, 24):
        gradients = ones(dtype)
        gradients[place].flat[-1] = bad
        finite, each, sums = checked(gradients, 8.0, tell_each=True)
        assert not finite
        assert np.flatnonzero(~np.asarray(each)).tolist() == [place]
        together, _, of_groups = checked(gradients, 8.0, tell_each=False)
        assert not together
        for found in (sums, of_groups):
            assert np.isnan(found).any() == (kind == 2)


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("tell_each", [True, False])
def test_sums_that_overflow_do_not_count(tell_each, jit):
    """20 gradients of the largest float32 are finite, and no sum of them is."""
    largest = float(np.finfo("float32").max)
    for scale in (1.0, 2.0**20):
        assert checked(ones(fill=largest), scale, tell_each, jit)[0]


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("tell_each", [True, False])
@pytest.mark.parametrize(("fill", "finite"), [(1e30, True), (2e38, False)])
def test_a_scale_below_1(fill, finite, tell_each, jit):
    """Quotients that overflow do, and numbers far below are none."""
    assert checked(ones(fill=fill), 0.25, tell_each, jit)[0] is finite
