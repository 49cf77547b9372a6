"""An op of a framework itself, as the recording takes it: `torch.matmul` beside `keras.ops.matmul`.

Plain data. Knows neither Keras nor a framework: `hooks` has the ops of each framework.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from keras_mp.graph_rewrite.graph import Shape

# Besides the lists of TensorFlow: an op that computes in the dtype of its inputs, and one that
# nobody knows.
Own = Literal["allow", "deny", "follow", "unknown"]


def as_they_are(shapes: Sequence[Shape]) -> Sequence[Shape]:
    """Returns its argument."""
    return shapes


@dataclass(frozen=True, slots=True)
class ForeignOp:
    """An op of a framework.

    Attributes:
        name: Its name in reports: "torch.matmul".
        kind: The keras op that computes the same, for its gradient and cost; "" for none.
        own: What the framework's own lists say of it; "unknown" if they do not know it.
        as_keras: Returns the shapes of its tensors as the keras op has them.
        has_autocast: Whether it runs several ops, in the dtypes of the framework's own autocast.
    """

    name: str
    kind: str
    own: Own
    as_keras: Callable[[Sequence[Shape]], Sequence[Shape]] = as_they_are
    has_autocast: bool = False
