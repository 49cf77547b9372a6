"""Places in a program where mixed precision is touched, and what a rule says of one."""

from dataclasses import dataclass
from typing import Literal

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.facts import Facts
from keras_mp.migration.code.names import Old
from keras_mp.migration.code.parsed import Program

Verdict = Literal["rewritten", "manual", "kept"]


@dataclass(frozen=True, slots=True)
class Site:
    """An expression that is, or has to do with, an old name.

    Attributes:
        program: What it is in.
        facts: What is known of the whole program.
        node: The expression, such as `mixed_precision.Policy`.
        old: The old name that it is; None where it is something else, such as `opt.loss_scale()`.
        call: The call of it, if it is called.
    """

    program: Program
    facts: Facts
    node: cst.CSTNode
    old: Old | None
    call: cst.Call | None

    @property
    def experimental(self) -> bool:
        """Returns whether it is one of the names of TF 1.15 to 2.3."""
        return self.old is not None and self.old.space != "tf.keras.mixed_precision"

    def is_called(self, *names: str) -> bool:
        """Returns whether it is a call of one of these old names."""
        return self.call is not None and self.old is not None and self.old.name in names

    def renamed(self, new: str, node: cst.CSTNode | None = None) -> Edit:
        """Returns the edit that puts a name in the place of the node."""
        start, end = self.program.span(node or self.node)
        return Edit(start, end, new)

    def read_of_result(self, name: str) -> bool:
        """Returns whether an attribute is read of what the call returns, here or through a name."""
        assert self.call is not None
        if self.experimental and self.facts.policies_have_scales:
            return True
        if name == "loss_scale" and self.why_scale() is not None:
            return True
        parent = self.program.parent(self.call)
        if isinstance(parent, cst.Attribute):
            return parent.attr.value == name
        target = self.facts.assigned_to(self.call)
        return target is not None and self.facts.reads(target, name)

    def why_scale(self) -> str | None:
        """Returns why another file needs the loss scale of the policy that is called for here."""
        assert self.call is not None
        return self.facts.elsewhere.scales.get(self.program.where(self.call))


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a site.

    Attributes:
        verdict: "rewritten", "manual" where somebody must look, or "kept" where it stays right.
        message: Why, or what to do.
        edits: Of the text.
        inner: Further nodes that it settles.
        unsafe: Whether the edits are to be made only if one asks for it.
    """

    verdict: Verdict
    message: str
    edits: tuple[Edit, ...] = ()
    inner: tuple[cst.CSTNode, ...] = ()
    unsafe: bool = False
