"""Random numbers are of the distributions that TensorFlow's are of, and others at each call.

Of images that are changed at random each result is one of those that TensorFlow can have.
"""

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.compat.layers.operation import Operation
from keras_mp.compat.operations import lambdas
from keras_mp.compat.operations.computing.evaluating import evaluate
from keras_mp.compat.operations.expressions import operation

SHAPE = [100, 100]


def numbers(name: str, *arguments: object, **options: object) -> np.ndarray:
    seed = keras.random.SeedGenerator(1)
    expression = operation(name, *arguments, **options)
    return np.asarray(ops.convert_to_numpy(evaluate(expression, [ops.ones((50, 40))], seed=seed)))


@pytest.mark.parametrize(
    ("name", "options", "mean", "std"),
    [
        ("random_normal", {}, 0, 1),
        ("random_normal", {"mean": 3.0, "stddev": 0.5}, 3, 0.5),
        ("random_truncated_normal", {}, 0, 0.8796),  # cut at twice the deviation
        ("random_truncated_normal", {"mean": 1.0, "stddev": 2.0}, 1, 1.7592),
        ("random_uniform", {}, 0.5, 12**-0.5),
        ("random_uniform", {"minval": -2.0, "maxval": 4.0}, 1, 3**0.5),
        ("random_uniform", {"minval": 2, "maxval": 7, "dtype": "int32"}, 4, 2**0.5),
        ("random_binomial", {"p": 0.3}, 0.3, 0.21**0.5),
    ],
)
def test_means_and_deviations(
    name: str, options: dict[str, object], mean: float, std: float
) -> None:
    found = numbers(name, SHAPE, **options)
    assert found.shape == (100, 100)
    assert abs(found.mean() - mean) < 5 * std / 100
    assert abs(found.std() / std - 1) < 0.05


def test_ends() -> None:
    assert np.abs(numbers("random_truncated_normal", SHAPE, 0.0, 3.0)).max() <= 6
    whole = numbers("random_uniform", SHAPE, 2, 7, "int32")
    assert set(whole.ravel().tolist()) == {2, 3, 4, 5, 6}
    assert set(numbers("random_binomial", SHAPE, 0.5).ravel().tolist()) == {0, 1}


def test_dropout_keeps_the_mean() -> None:
    found = numbers("dropout", {"tensor": 0}, 0.25)
    assert set(np.round(found * 3).ravel().tolist()) == {0, 4}
    assert abs(found.mean() - 1) < 0.1
    rows = numbers("dropout", {"tensor": 0}, 0.5, [50, 1])
    assert (rows == rows[:, :1]).all()


def test_a_shuffle_moves_rows() -> None:
    rows = operation("arange", 0, 50)
    pairs = operation("stack", [operation("constant", list(range(50))), rows], 1)
    found = numbers("random_shuffle", pairs)
    assert (found[:, 0] == found[:, 1]).all()
    assert sorted(found[:, 0].tolist()) == list(range(50)) != found[:, 0].tolist()


IMAGES = np.arange(40 * 3 * 4 * 1, dtype="float32").reshape(40, 3, 4, 1) / 500
OF_IMAGES = {"tensor": 0}


def of_function(name: str, *arguments: object, seed: int = 1, images: Any = IMAGES) -> np.ndarray:
    """Returns what a function of tf.image makes of images."""
    expression = lambdas.of_tensorflow(f"image.{name}", [OF_IMAGES, *arguments], {})
    generator = keras.random.SeedGenerator(seed)
    result = evaluate(expression, [ops.convert_to_tensor(images)], seed=generator)
    return np.asarray(ops.convert_to_numpy(result))


@pytest.mark.parametrize(("side", "axis"), [("left_right", 2), ("up_down", 1)])
def test_each_image_is_flipped_or_not(side: str, axis: int) -> None:
    found = of_function(f"random_flip_{side}")
    is_flipped = (found == np.flip(IMAGES, axis)).all((1, 2, 3))
    assert (is_flipped | (found == IMAGES).all((1, 2, 3))).all()
    assert 8 <= is_flipped.sum() <= 32  # of 40
    alone = [of_function(f"random_flip_{side}", seed=i, images=IMAGES[0]) for i in range(12)]
    flips = {bool((one == np.flip(IMAGES[0], axis - 1)).all()) for one in alone}
    assert flips == {True, False}
    assert all((one == IMAGES[0]).all() for one in alone if (one[0, 0] == IMAGES[0, 0, 0]).all())


@pytest.mark.parametrize("images", [IMAGES, IMAGES.astype("float16")])
def test_all_images_are_as_much_brighter(images: Any) -> None:
    found = [of_function("random_brightness", 0.25, seed=i, images=images) for i in range(8)]
    more = [(one - images).astype("float32") for one in found]
    assert all(np.ptp(one) < 2e-3 for one in more)
    means = [float(one.mean()) for one in more]
    assert max(map(abs, means)) <= 0.25
    assert len({round(one, 3) for one in means}) > 4
    assert min(means) < 0 < max(means)


def test_all_images_have_as_much_more_contrast() -> None:
    away = IMAGES - IMAGES.mean((1, 2), keepdims=True)
    for i in range(4):
        found = of_function("random_contrast", 0.5, 1.5, seed=i)
        factors = (found - IMAGES.mean((1, 2), keepdims=True)) / away
        assert np.ptp(factors) < 1e-2
        assert 0.5 <= factors.mean() <= 1.5


COLOURS = np.random.RandomState(0).uniform(0.2, 0.8, (2, 3, 4, 3)).astype("float32")


@pytest.mark.parametrize(
    ("name", "limits", "part"),
    [("random_hue", (0.1,), 0), ("random_saturation", (0.5, 0.9), 1)],
)
def test_colours_change_in_one_part(name: str, limits: tuple[float, ...], part: int) -> None:
    before = np.asarray(ops.convert_to_numpy(ops.image.rgb_to_hsv(COLOURS)))
    found = of_function(name, *limits, images=COLOURS)
    after = np.asarray(ops.convert_to_numpy(ops.image.rgb_to_hsv(found)))
    kept = [one for one in range(3) if one != part]
    np.testing.assert_allclose(after[..., kept], before[..., kept], atol=1e-4)
    if part:
        change = after[..., part] / before[..., part]
        assert limits[0] <= change.mean() <= limits[1]
    else:
        change = (after[..., part] - before[..., part] + 0.5) % 1 - 0.5
        assert 0 < abs(change.mean()) <= limits[0]
    assert np.ptp(change) < 1e-3


def test_a_crop_is_one_of_those_that_there_are() -> None:
    possible = {
        IMAGES[:2, row : row + 2, column : column + 3].tobytes(): (row, column)
        for row in range(2)
        for column in range(2)
    }
    found = {
        possible[of_function("random_crop", [2, 2, 3, 1], seed=i, images=IMAGES[:2]).tobytes()]
        for i in range(24)
    }
    assert found == set(possible.values())


def test_others_at_each_call() -> None:
    layer = Operation("random_normal", {"shape": [3]}, seed=1)
    first, second = (ops.convert_to_numpy(layer(ops.ones((1,)))) for _ in range(2))
    assert (first != second).any()
