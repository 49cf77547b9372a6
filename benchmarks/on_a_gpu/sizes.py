"""What is trained, as numbers: how large, what memory that takes, what is worth to measure first.

Imports neither Keras nor anything of ours; `models.py` builds what these numbers say.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True)
class Size:
    """A decoder: the shapes of GPT-3, Brown et al. 2020, table 2.1, but heads that divide width."""

    blocks: int
    width: int
    heads: int
    vocabulary: int = 50257
    sequence: int = 1024
    batch: int = 4

    def shapes(self) -> list[tuple[int, ...]]:
        """Returns the shape of each variable, in the order of the model."""
        d, h = self.width, self.heads
        norm = [(d,), (d,)]
        projection = [(d, h, d // h), (h, d // h)]
        attention = [*3 * projection, (h, d // h, d), (d,)]
        dense = [(d, 4 * d), (4 * d,), (4 * d, d), (d,)]
        block = [*norm, *attention, *norm, *dense]
        return [(self.vocabulary, d), (self.sequence, d), *self.blocks * block, *norm]

    def parameters(self) -> int:
        """Returns how many numbers are trained.

        >>> [round(SIZES[name].parameters() / 1e6) for name in ("125M", "1.3B")]
        [124, 1314]
        """
        return sum(math.prod(shape) for shape in self.shapes())

    def needed(self, policy: str | None = None) -> int:
        """Returns about how many bytes a step takes: of the optimizer, or of training in `policy`.

        16 a parameter for weight, moments and gradient, and 12 for temporaries of Keras' Adam in
        torch; activations after Korthikanti et al. 2022, section 4.1, without parallelism, and four
        times the logits.
        """
        needed = (16 + 12) * self.parameters()
        if policy is not None:
            tokens = self.batch * self.sequence
            block = tokens * (34 * self.width + 5 * self.heads * self.sequence)
            needed += block * self.blocks * (2 if policy == "float32" else 1)
            needed += 4 * 4 * tokens * self.vocabulary
        return needed


@dataclasses.dataclass(frozen=True)
class Images:
    """A ResNet-50, He et al. 2015; or where `blocks` is 0, a net of three convolutions.

    It has no line of its own for the optimizer alone.
    """

    blocks: int = 50
    side: int = 224
    classes: int = 1000
    batch: int = 64

    def parameters(self) -> int:
        """Returns how many numbers are trained, about."""
        return 25_600_000 if self.blocks else 30_000

    def needed(self, policy: str | None = None) -> int:
        """Returns about how many bytes a training step takes; 250 MB an image in float32."""
        images = self.batch * (250_000_000 if self.blocks else 1_000_000)
        return (16 + 12) * self.parameters() + images // (1 if policy == "float32" else 2)


Work = Size | Images
SIZES: dict[str, Work] = {
    "125M": Size(12, 768, 12),
    "ResNet-50": Images(),
    "1.3B": Size(24, 2048, 16),
}
QUICK: dict[str, Work] = {
    "quick": Size(2, 64, 4, vocabulary=512, sequence=32, batch=2),
    "quick images": Images(blocks=0, side=12, classes=10, batch=2),
}


def parts(sizes: Sequence[str], policies: Sequence[str | None]) -> Iterator[tuple[str, str | None]]:
    """Yields (size, policy) in the order of their worth; None is the optimizer alone.

    What most people do comes first: mixed_float16 on each kind of net. The largest decoder is last.

    >>> for size, policy in parts(["125M", "ResNet-50", "1.3B"], ["mixed_float16", "float32"]):
    ...     print(size, policy)
    125M None
    125M mixed_float16
    ResNet-50 mixed_float16
    125M float32
    ResNet-50 float32
    1.3B None
    1.3B mixed_float16
    1.3B float32
    """
    last = [name for name in sizes if name == "1.3B"]
    for names in ([name for name in sizes if name not in last], last):
        for policy in (None, *policies):
            for name in names:
                if policy is not None or isinstance((SIZES | QUICK)[name], Size):
                    yield name, policy
