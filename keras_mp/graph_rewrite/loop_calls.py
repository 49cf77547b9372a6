"""Keras' loops in one form: a body that takes a state and elements, and returns both.

Only this module distinguishes `keras.ops.while_loop`, `fori_loop`, `scan` and `map`, and the loop
of recurrent layers.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

Body = Callable[[Any, Any], tuple[Any, Any]]
"""body(state, elements) -> (new state, new elements), each of any structure."""


@dataclass(frozen=True)
class LoopCall:
    """One call of a loop.

    Attributes:
        body: One step.
        condition: Called with the state before each step, or None.
        state: The carried values, before the first step.
        sequences: The tensors whose elements the body reads.
        axis: The axis of `sequences` along which the elements lie.
        steps: How often the body runs; None if unknown beforehand.
        length: The same, also as a tensor; None without sequences.
        masked: Whether a mask decides which examples take a step.
        is_uniform: Whether the body must return the dtypes of the state.
        has_number: Whether the body gets the number of the step in another way.
        run: run(condition, body, state, sequences) runs the loop and returns its result.
        unpack: Returns (state, [whole, ...], [last, ...]) of a result; `last` is the last step's.
        pack: pack(state, whole, last) returns a result.
    """

    body: Body
    state: Any
    run: Callable[[Any, Body, Any, Any], Any]
    unpack: Callable[[Any], tuple[Any, Any, Any]]
    pack: Callable[[Any, Any, Any], Any]
    condition: Callable[[Any], Any] | None = None
    sequences: Any = ()
    axis: int = 0
    steps: int | None = None
    length: Any = None
    masked: bool = False
    is_uniform: bool = False
    has_number: bool = False


def loop_call(
    name: str, original: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> LoopCall | None:
    """Returns a loop's call in the common form, or None if it has none.

    Args:
        name: "rnn", "while_loop", "fori_loop", "scan" or "map".
        original: The function of Keras' backend.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    return _KINDS[name](original, dict(bound.arguments))


def _rnn(original: Callable[..., Any], given: dict[str, Any]) -> LoopCall | None:
    step, inputs = given.pop("step_function"), given.pop("inputs")
    state, mask = given.pop("initial_states"), given.pop("mask")
    if given["constants"] or given["time_major"]:  # Keras' layers never set them
        return None

    def body(state: Any, elements: Any) -> tuple[Any, Any]:
        output, state = step(elements, state)
        return state, output

    def run(condition: Any, body: Body, state: Any, sequences: Any) -> Any:
        def stepped(elements: Any, state: Any) -> tuple[Any, Any]:
            state, output = body(state, elements)
            return output, state

        return original(stepped, sequences, state, mask=mask, **given)

    steps, length = _length(inputs, 1)
    return LoopCall(
        body,
        state,
        run,
        unpack=lambda result: (result[2], result[1], result[0]),
        pack=lambda state, whole, last: (last, whole, state),
        sequences=inputs,
        axis=1,
        steps=steps,
        length=length,
        masked=mask is not None,
        is_uniform=mask is not None,  # it chooses between the two
    )


def _while_loop(original: Callable[..., Any], given: dict[str, Any]) -> LoopCall:
    condition, step = given["cond"], given["body"]
    state, most = given["loop_vars"], given["maximum_iterations"]
    is_tuple = isinstance(state, (tuple, list))

    def spread(function: Callable[..., Any]) -> Callable[[Any], Any]:
        return (lambda state: function(*state)) if is_tuple else function

    def body(state: Any, elements: Any) -> tuple[Any, Any]:
        return spread(step)(state), ()

    def run(condition: Any, body: Body, state: Any, sequences: Any) -> Any:
        def gathered(*state: Any) -> Any:
            return body(state if is_tuple else state[0], ())[0]

        def goes_on(*state: Any) -> Any:
            return condition(state if is_tuple else state[0])

        return original(goes_on, gathered, state, most)

    return LoopCall(
        body,
        state,
        run,
        *_STATE_ONLY,
        condition=spread(condition),
        steps=most if isinstance(most, int) else None,
    )


def _fori_loop(original: Callable[..., Any], given: dict[str, Any]) -> LoopCall:
    lower, upper, step = given["lower"], given["upper"], given["body_fun"]
    held: list[Any] = [lower]

    def body(state: Any, elements: Any) -> tuple[Any, Any]:
        return step(held[0], state), ()

    def run(condition: Any, body: Body, state: Any, sequences: Any) -> Any:
        def counted(index: Any, state: Any) -> Any:
            held[0] = index
            return body(state, ())[0]

        return original(lower, upper, counted, state)

    is_fixed = isinstance(lower, int) and isinstance(upper, int)
    steps = max(0, upper - lower) if is_fixed else None
    return LoopCall(body, given["init_val"], run, *_STATE_ONLY, steps=steps, has_number=True)


def _scan(original: Callable[..., Any], given: dict[str, Any]) -> LoopCall:
    step, state, sequences = given.pop("f"), given.pop("init"), given.pop("xs")

    def run(condition: Any, body: Body, state: Any, sequences: Any) -> Any:
        return original(body, state, sequences, **given)

    steps, length = _length(sequences, 0)
    if length is None:
        steps = length = given["length"]
    return LoopCall(
        step,
        state,
        run,
        unpack=lambda result: (result[0], result[1], None),
        pack=lambda state, whole, last: (state, whole),
        sequences=sequences,
        steps=steps,
        length=length,
        is_uniform=True,  # Keras on TensorFlow stores it in arrays of the state's dtypes
    )


def _map(original: Callable[..., Any], given: dict[str, Any]) -> LoopCall:
    step = given["f"]

    def body(state: Any, elements: Any) -> tuple[Any, Any]:
        return (), step(elements)

    def run(condition: Any, body: Body, state: Any, sequences: Any) -> Any:
        return original(lambda elements: body((), elements)[1], sequences)

    steps, length = _length(given["xs"], 0)
    return LoopCall(
        body,
        (),
        run,
        unpack=lambda result: ((), result, None),
        pack=lambda state, whole, last: whole,
        sequences=given["xs"],
        steps=steps,
        length=length,
    )


def _length(sequences: Any, axis: int) -> tuple[int | None, Any]:
    leaves = keras.tree.flatten(sequences)
    if not leaves or leaves[0] is None:
        return None, None
    length = ops.shape(leaves[0])[axis]
    return (length if isinstance(length, int) else None), length


_STATE_ONLY = (lambda result: (result, (), None), lambda state, whole, last: state)
_KINDS: Mapping[str, Callable[[Callable[..., Any], dict[str, Any]], LoopCall | None]] = {
    "rnn": _rnn,
    "while_loop": _while_loop,
    "fori_loop": _fori_loop,
    "scan": _scan,
    "map": _map,
}
