"""An op of a framework itself, as the recording takes it: `torch.matmul` beside `keras.ops.matmul`.

Plain data. Knows neither Keras nor a framework: `hooks` has the ops of each framework.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from keras_mp.graph_rewrite.graph import Shape

# "follow": computes in the dtype of its inputs; "unknown": nobody knows it; "in_place": changes a
# tensor that it is given; "listed": the lists of TensorFlow decide, by the keras op; "tensorflow":
# they decide, by the op's own name.
Own = Literal["allow", "deny", "follow", "unknown", "in_place", "listed", "tensorflow"]
Inside = Literal["", "autocast", "float32", "function"]


def as_they_are(shapes: Sequence[Shape]) -> Sequence[Shape]:
    """Returns its argument."""
    return shapes


@dataclass(frozen=True, slots=True)
class ForeignOp:
    """An op of a framework.

    Attributes:
        name: Its name in reports: "torch.matmul".
        kind: The keras op that computes the same, for its gradient and cost; "" for none.
        own: What the framework's own lists say of it.
        as_keras: Returns the shapes of its tensors as the keras op has them.
        inside: Of several ops in one: whether those compute in the dtypes of the framework's own
            autocast, or in float32 between tensors of 16 bits; or, of a function that nobody
            knows, that it may take tensors that are none of its arguments; else "".
        is_view: Whether its result may share memory with its argument: a change of one in place
            changes the other.
        stands_for: Of an op of TensorFlow: its names in the lists.
        equation: That of an einsum.
        fixed: The places of tensors that stay as they are where others are in 16 bits.
        outputs: Whether each of its results is in 16 bits, then; () for all.
    """

    name: str
    kind: str
    own: Own
    as_keras: Callable[[Sequence[Shape]], Sequence[Shape]] = as_they_are
    inside: Inside = ""
    is_view: bool = False
    stands_for: tuple[str, ...] = ()
    equation: str = ""
    fixed: frozenset[int] = frozenset()
    outputs: tuple[bool, ...] = ()
