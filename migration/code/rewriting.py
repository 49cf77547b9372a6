"""Source in, source out: finds what touches mixed precision, asks the rules, edits the text."""

import bisect
import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import ModuleType

import libcst as cst

from keras_mp.migration.code import edits as texts
from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.facts import Facts
from keras_mp.migration.code.findings import BASELINE, NOQA, Found, Spot
from keras_mp.migration.code.importing import import_of_ours
from keras_mp.migration.code.names import legacy_name
from keras_mp.migration.code.parsed import (
    ExpressionVisitor,
    Import,
    Program,
    Unparsable,
    chain,
    parts_of,
    root_of,
    string,
)
from keras_mp.migration.code.project import NOTHING, Elsewhere
from keras_mp.migration.code.sites import Decision, Site, Verdict
from keras_mp.migration.code.suppressing import Suppressions
from keras_mp.migration.code.syntax import syntax_error
from keras_mp.migration.keras3.checking import decisions
from keras_mp.migration.rules import (
    dtype_policies,
    experimental_optimizers,
    graph_rewrite,
    graph_rewrite_switches,
    id_of,
    imports,
    layer_attributes,
    layer_policies,
    loss_scale_classes,
    loss_scale_optimizers,
    mentions,
    modules_of_layers,
    optimizer_attributes,
    optimizer_classes,
    other_packages,
    private_optimizer_attributes,
    reading_policies,
    setting_policies,
    training_loops,
    unknown_names,
    version_checks,
)
from keras_mp.migration.to_backend import searching
from keras_mp.migration.to_backend.spelling import horovod_name
from keras_mp.migration.to_backend.uses import Target

__all__ = ["Result", "Unparsable", "may_concern", "rewrite"]

_WORDS = (
    "mixed_precision", "LossScale", "loss_scale", "get_scaled_loss", "get_unscaled_gradients",
    "AUTO_MIXED_PRECISION", "auto_mixed_precision",
    r"_compute_dtype(_object)?\b", "experimental_autocast",
)  # fmt: skip
_BROAD = re.compile("|".join(_WORDS))
# What asks an optimizer for the one inside it, in a program that says nothing else of it.
_LOOKUP = r"attr\([^\"']{1,80}[\"']_optimizer[\"']"
_CONCERNS = re.compile("|".join((*_WORDS, _LOOKUP)))
_CONCERNS_BYTES = re.compile(_CONCERNS.pattern.encode())
_PRIVATE = "|".join(sorted(private_optimizer_attributes.ATTRIBUTES))
_PRIVATE_BYTES = re.compile(
    rf"\b({_PRIVATE}|_optimizer)\b|\b(learning_rate|lr)\(|{other_packages.WORDS.pattern}".encode()
)
# What a program that uses Keras holds at least.
_KERAS = re.compile(r"keras|tensorflow")
_KERAS_BYTES = re.compile(_KERAS.pattern.encode())
# In this order: the first rule that decides about a place is the one that counts.
_SITE_RULES = (
    unknown_names,
    experimental_optimizers,
    loss_scale_optimizers,
    dtype_policies,
    setting_policies,
    reading_policies,
    layer_policies,
    loss_scale_classes,
    optimizer_classes,
    optimizer_attributes,
    graph_rewrite,
    imports,
)
# What a program calls these packages: after an import of everything nothing else tells.
_USUAL = {name: name for name in ("tensorflow", "keras", "tf_keras")} | {"tf": "tensorflow"}
_STAR = re.compile(r"^[ \t]*from[ \t]+[.\w]+[ \t]+import[ \t]*\*", re.MULTILINE)
_OF_COMPAT = ("keras_mp.compat.mixed_precision.experimental.", "keras_mp.compat.train.")
_MENTIONS = id_of(mentions)
_OPTION = graph_rewrite_switches.OPTION
_SET_VARIABLE = re.compile(r"TF_ENABLE_AUTO_MIXED_PRECISION\w*(=|$)")
_VARIABLE = graph_rewrite_switches.VARIABLE
_TAKE_OPTIONS = re.compile(r"experimental_options\b|[Rr]ewriter_?[Cc]onfig|rewrite_options")
_OF_OPTIMIZERS = (
    *("_optimizer", "_loss_scale", "loss_scale"),
    *optimizer_attributes.SCALE_ATTRIBUTES,
    *optimizer_attributes.SCALE_OBJECT_ONLY,
)


_Text = cst.SimpleString | cst.FormattedString


@dataclass(frozen=True, slots=True)
class Result:
    """What becomes of a program.

    Attributes:
        text: It, rewritten; the very text that was given where nothing is.
        findings: Sorted by their place. Every line that mentions mixed precision has one.
    """

    text: str
    findings: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """Which rules are applied, and how.

    Attributes:
        only: Rules by their ids; None for all.
        skip: Rules to leave out.
        unsafe: Whether to make edits, too, that may be wrong.
        known: Findings to leave alone: rule and line of source -> how many.
        target: A backend, to also find what keeps programs on TensorFlow; None for none.
        keras3: Whether to look for what else stops a program under Keras 3.
    """

    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()
    unsafe: bool = False
    known: Mapping[tuple[str, str], int] = field(default_factory=dict)
    target: Target | None = None
    keras3: bool = False

    def has(self, rule: str) -> bool:
        """Returns whether a rule is applied."""
        return (self.only is None or rule in self.only) and rule not in self.skip


USUAL = Options()


def may_concern(data: bytes, elsewhere: Elsewhere = NOTHING, options: Options = USUAL) -> bool:
    """Returns whether a file is worth parsing: whether it holds any of the words at all.

    In a program that has to do with mixed precision there are more of them: private names of
    optimizers, and names of packages around them.

    Args:
        data: What is in it.
        elsewhere: What other files of the program tell of this one.
        options: What is looked for.

    >>> may_concern(b"import keras"), may_concern(b"opt.get_scaled_loss(loss)")
    (False, True)
    """
    if (
        _CONCERNS_BYTES.search(data) is not None
        or elsewhere.modules
        or any(map(legacy_name, elsewhere.names.values()))
    ):
        return True
    if options.target is not None and searching.may_concern(data):
        return True
    if options.keras3 and _KERAS_BYTES.search(data) is not None:
        return True
    return elsewhere.is_concerned and _PRIVATE_BYTES.search(data) is not None


def rewrite(
    text: str,
    options: Options = USUAL,
    *,
    elsewhere: Elsewhere = NOTHING,
    known: Collection[Spot] = (),
) -> Result:
    """Returns a program with its mixed precision rewritten for keras_mp.

    Args:
        text: A module, without a byte order mark; line ends of any kind stay.
        options: Which rules are applied; its `known` is for `plan`.
        elsewhere: What other files of the program tell of this one.
        known: The places of findings of an earlier call, to be left alone.

    Raises:
        Unparsable: `text` is not Python.

    >>> rewrite("from tf_keras import mixed_precision as mp\\nmp.global_policy()").text
    'import keras_mp\\nkeras_mp.global_policy()'
    """
    data = text.encode(errors="replace")
    if not may_concern(data, elsewhere, options):
        return Result(text, ())
    names = {**_USUAL, **elsewhere.names} if _STAR.search(text) else elsewhere.names
    return _Run(Program(text, names), options, elsewhere, known).result()


class _Run:
    """One program on its way: what was decided, and what that leaves to decide."""

    def __init__(
        self,
        program: Program,
        options: Options,
        elsewhere: Elsewhere,
        known: Collection[Spot],
    ) -> None:
        self._program = program
        self._options = options
        self._known = known
        self._suppressions = Suppressions(program)
        # What would be edited and is not, and its old names.
        self._suppressed: dict[cst.CSTNode, str] = {}
        self._left_alone: set[cst.CSTNode] = set()
        self._facts = Facts(program, elsewhere)
        self._edits: list[Edit] = []
        self._findings: list[Found] = []
        self._settled: set[cst.CSTNode] = set()
        self._inner: set[cst.CSTNode] = set()
        self._ours = False
        # What something was said of.
        self._told: set[cst.CSTNode] = set()
        self._covered: dict[int, tuple[str, Verdict, str, str]] = {}

    def result(self) -> Result:
        target, program, found = self._options.target, self._program, _Expressions(self._program)
        program.module.visit(found)
        elsewhere = self._facts.elsewhere
        self._facts.is_concerned = bool(found.old) or elsewhere.is_concerned
        has_optimizers = bool(found.old) or bool(elsewhere.optimizers)
        for node in found.old:
            self._of_old(node)
        for node in found.attributes:
            self._of_attribute(node)
        own = frozenset(found.assigned)
        for attribute in found.of_layers:
            decision = layer_attributes.of_attribute(program, attribute, own)
            self._note(layer_attributes, attribute, decision)
        for argument in found.arguments:
            of_argument = layer_attributes.of_argument(program, argument)
            self._note(layer_attributes, argument, of_argument)
        for attribute in found.private if self._facts.is_concerned else ():
            of_private = private_optimizer_attributes.decide(program, attribute)
            if of_private is not None and (has_optimizers or of_private.verdict == "rewritten"):
                self._note(private_optimizer_attributes, attribute, of_private)
        for attribute in found.private:
            of_module = modules_of_layers.decide(self._facts, attribute)
            self._note(modules_of_layers, attribute, of_module)
        if has_optimizers:
            for node in found.of_packages:
                full = program.full_name(node)
                # With a target KMP215 says of Horovod what to write there.
                if not (target and horovod_name(full)):
                    self._note(other_packages, node, other_packages.decide(full))
        for call, decision in training_loops.decide(self._facts):
            self._note(training_loops, call, decision)
        for statement in found.imports:
            decided = imports.of_import(program, statement, self._settled, self._left_alone)
            for is_guarded, decision in decided:
                self._note(version_checks if is_guarded else imports, statement, decision)
        for node in found.switches:
            decision = graph_rewrite_switches.decide(program, node)
            self._note(graph_rewrite_switches, node, decision)
        for node, value in found.strings:
            self._note(mentions, node, mentions.of_string(value))
        for node in found.unresolved:
            self._note(mentions, node, mentions.of_name(program.source(node)))
        self._mentions(found)
        told = frozenset(self._told)
        for rule, place, decision in decisions(program) if self._options.keras3 else ():
            if not (isinstance(place, cst.Attribute) and place in told):
                self._note(rule, place, decision)
        if target is not None:
            for node, rule, message in searching.obstacles(program, target):
                self._note(rule, node, Decision("manual", message))
        if self._ours:
            self._edits += import_of_ours(program, self._edits)
        text = texts.apply(program.text, self._edits)
        if self._edits and syntax_error(text) and not syntax_error(program.text):
            text = program.text
            self._findings = [_not_done(finding) for finding in self._findings]
        findings = sorted(set(self._findings), key=lambda f: (f.line, f.column, f.rule))
        return Result(text, tuple(findings))

    def _of_old(self, node: cst.CSTNode) -> None:
        program = self._program
        meaning, name = program.meaning(node), program.old(node)
        if meaning is None or name is None or node in self._inner:
            return
        if program.is_dead(node):
            self._note(version_checks, node, version_checks.DEAD)
            return
        if meaning.guarded or meaning.several or program.is_guarded(node):
            several = meaning.several and not meaning.guarded
            as_text = program.compared_as_text(node)
            decision = version_checks.decide(name, several=several, as_text=as_text)
            self._note(version_checks, node, decision)
            return
        if program.is_bound(node):
            self._note(unknown_names, node, unknown_names.binding_message(name))
            return
        call = program.call_of(node)
        site = Site(program, self._facts, node, name, call)
        for rule in _SITE_RULES:
            decided = rule.decide(site)
            if decided is not None:
                is_left = self._note(rule, call or node, decided, node)
                if call and is_left:
                    self._facts.note_left_alone(call)
                elif call and any(edit.text.startswith(_OF_COMPAT) for edit in decided.edits):
                    self._facts.note_compat(call)
                return
        self._note(unknown_names, node, Decision("manual", f"unsupported use of {name}"))

    def _of_attribute(self, node: cst.CSTNode) -> None:
        call = self._program.call_of(node)
        site = Site(self._program, self._facts, node, None, call)
        decision = optimizer_attributes.decide(site)
        if decision is None:
            return
        if self._program.is_guarded(node) or self._program.is_bound(node):
            decision = Decision("manual", decision.message)
        self._note(optimizer_attributes, call or node, decision)

    def _note(
        self,
        of: str | ModuleType,
        node: cst.CSTNode,
        decision: Decision | None,
        name: cst.CSTNode | None = None,
    ) -> bool:
        """Takes a decision of a rule, if it has one: its edits, and a finding for each line of it.

        Returns whether it would be edited, and is left alone.
        """
        if decision is None:
            return False
        if self._program.is_dead(node):
            of, decision = version_checks, version_checks.DEAD
        rule = of if isinstance(of, str) else id_of(of)
        if not self._options.has(rule):
            return False
        self._told.add(node)
        verdict, message = decision.verdict, decision.message
        edits = decision.edits if not decision.unsafe or self._options.unsafe else ()
        if decision.unsafe and self._options.unsafe:
            verdict = "rewritten"
        if edits and not self._program.has_positions:
            verdict, edits = "manual", ()
            message = f"not rewritten, because libcst gives no position for it: {message}"
        line, column = self._program.where(node)
        suppressed = self._suppressed_by(rule, node, verdict, edits)
        is_left = bool(suppressed and edits)
        if is_left:
            edits = ()
            self._suppressed[node] = suppressed
            self._left_alone.update(decision.inner if name is None else (name, *decision.inner))
            self._inner.update(decision.inner)
        edits, gone = self._merged(edits)
        if any(set(texts.overlapping(self._edits, edit)) - gone for edit in edits):
            verdict, edits = "manual", ()
            message = f"inside something that is rewritten, too: {message}"
        if edits:
            self._edits = [one for one in self._edits if one not in gone] if gone else self._edits
            for edit in edits:
                bisect.insort(self._edits, edit)
            self._ours |= any(_needs_import(edit) for edit in edits)
        if edits and name is not None:
            self._settled.add(root_of(name))
            self._inner.update(decision.inner)
            self._settled.update(root_of(one) for one in decision.inner)
        self._find(line, column, rule, verdict, message, suppressed)
        for other in self._program.lines_of(node):
            self._covered.setdefault(other, (rule, verdict, message, suppressed))
        return is_left

    def _suppressed_by(
        self, rule: str, node: cst.CSTNode, verdict: Verdict, edits: Iterable[Edit]
    ) -> str:
        """Returns by what a node is to be left alone: itself, or something that it is in."""
        if verdict == "kept":
            return ""
        line, column = self._program.where(node)
        if (line, column, rule) in self._known:
            return BASELINE
        within = (self._program.lines.within(edit.start, edit.end) for edit in edits)
        if self._suppressions.has(rule, itertools.chain([line], *within)):
            return NOQA
        above = self._program.above(node) if self._suppressed else ()
        return next((self._suppressed[up] for up in above if up in self._suppressed), "")

    def _merged(self, edits: tuple[Edit, ...]) -> tuple[tuple[Edit, ...], set[Edit]]:
        """Returns edits, deletions joined with earlier ones that overlap them, and these."""
        result, gone = [], set()
        for edit in edits:
            for other in texts.overlapping(self._edits, edit):
                if not edit.text and not other.text and other not in gone:
                    gone.add(other)
                    edit = Edit(min(edit.start, other.start), max(edit.end, other.end), "")
            result.append(edit)
        return tuple(result), gone

    def _find(
        self,
        line: int,
        column: int,
        rule: str,
        verdict: Verdict,
        message: str,
        suppressed: str = "",
    ) -> None:
        source = self._program.lines.of(line).strip()
        found = Found(line, column, rule, verdict, source, message, suppressed)
        self._findings.append(found)

    def _mentions(self, found: "_Expressions") -> None:
        known = {finding.line for finding in self._findings}
        ends = list(itertools.accumulate((end for _, end in found.texts), max))
        for line in range(1, len(self._program.lines) + 1):
            code = self._program.lines.of(line)
            match = _BROAD.search(code)
            if match is None or line in known:
                continue
            if line in self._covered:  # a further line of something that was decided
                rule, verdict, message, suppressed = self._covered[line]
                if verdict == "manual" and self._suppressions.has(rule, [line]):
                    suppressed = NOQA
                column = len(code) - len(code.lstrip()) + 1
                self._find(line, column, rule, verdict, message, suppressed)
                continue
            if not self._options.has(_MENTIONS):
                continue
            comment = any(at <= match.start() for at in found.comments.get(line, ()))
            offset = self._program.lines.offset(line, match.start())
            at = bisect.bisect_right(found.texts, offset, key=itemgetter(0))
            text = at > 0 and offset < ends[at - 1]
            decision = mentions.of_line(code, comment=comment, text=text)
            self._find(line, match.start() + 1, _MENTIONS, decision.verdict, decision.message)


def _needs_import(edit: Edit) -> bool:
    lines = (line.strip() for line in re.split(r"[;\r\n]", edit.text))
    return any("keras_mp." in line and not line.startswith(_NO_USE) for line in lines)


_NO_USE = ("from ", "import ", "#")


def _not_done(finding: Found) -> Found:
    if finding.verdict != "rewritten" or finding.suppressed:
        return finding
    why = f"not rewritten, because the result would not parse: {finding.message}"
    return replace(finding, verdict="manual", message=why)


class _Expressions(ExpressionVisitor):
    """Collects what rules look at, in the order of the text."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.has_options = _TAKE_OPTIONS.search(program.text) is not None
        self.old: list[cst.CSTNode] = []
        self.attributes: list[cst.CSTNode] = []
        self.of_layers: list[cst.Attribute] = []
        self.arguments = [one for one in program.nodes.of(cst.Arg) if one.keyword is not None]
        self.private: list[cst.Attribute] = []
        self.assigned: set[str] = set()  # names of attributes
        self.imports: list[Import] = program.nodes.of(cst.Import, cst.ImportFrom)
        self.switches: list[cst.CSTNode] = []
        self.strings: list[tuple[cst.CSTNode, str]] = []
        self.has_packages = other_packages.WORDS.search(program.text) is not None
        self.of_packages: list[cst.CSTNode] = []
        self.unresolved: list[cst.CSTNode] = []  # names that nothing in the program explains
        strings: list[_Text] = program.nodes.of(cst.SimpleString, cst.FormattedString)
        self.texts = [program.span(one) for one in strings]
        self.comments: dict[int, list[int]] = {}
        for line, column in map(program.where, program.nodes.of(cst.Comment)):
            self.comments.setdefault(line, []).append(column - 1)

    def _of_keras(self, node: cst.CSTNode) -> None:
        """Notes a private name of layers or optimizers."""
        if not isinstance(node, cst.Attribute):
            return
        if self.program.is_bound(node):
            self.assigned.add(node.attr.value)
        elif node.attr.value in layer_attributes.ATTRIBUTES:
            self.of_layers.append(node)
        self.private.append(node)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        for part in [node] if chain(node) is None else parts_of(node):
            self._of_keras(part)
        if _OPTION.fullmatch(node.attr.value) and self.has_options:
            self.switches.append(node)
        if chain(node) is None:
            if _is_of_optimizers(node):
                self.attributes.append(node)
            return True
        for part in parts_of(node):
            if self.program.old(part) is not None:
                self.old.append(part)
                return False
        self.attributes += [part for part in parts_of(node) if _is_of_optimizers(part)]
        self.unresolved.append(node)
        if self.has_packages:
            self.of_packages.append(node)
        return False

    def visit_Call(self, node: cst.Call) -> None:
        name = optimizer_attributes.attribute_looked_up(self.program, node)
        if name in ("_optimizer", "_loss_scale"):
            self.attributes.append(node)

    def visit_Name(self, node: cst.Name) -> None:
        parent = self.program.parent(node)
        if isinstance(parent, cst.Arg) and parent.keyword is node:
            is_variable = node.value.startswith(_VARIABLE)
            if is_variable or (_OPTION.fullmatch(node.value) and self.has_options):
                self.switches.append(node)
        elif isinstance(parent, (cst.AssignTarget, cst.Param)) or self.program.is_label(node):
            return
        elif self.program.old(node) is not None:
            self.old.append(node)
        elif self.program.is_unbound(node):
            self.unresolved.append(node)
        elif self.has_packages:
            self.of_packages.append(node)

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        value = string(node)
        parent = self.program.parent(node)
        if value is None or isinstance(parent, (cst.Expr, cst.Annotation)):
            return
        if value in ("mixed_precision", "experimental") and self._is_looked_up(node):
            self.strings.append((node, "tf.keras.mixed_precision"))
            return
        if _SET_VARIABLE.search(value) or (_OPTION.fullmatch(value) and self.has_options):
            self.switches.append(node)
        else:
            self.strings.append((node, value))

    def _is_looked_up(self, node: cst.CSTNode) -> bool:
        call = self.program.around(node, cst.Call)
        source = self.program.source(call.func) if call is not None else ""
        return source.split(".")[-1] in ("getattr", "setattr", "hasattr", "import_module")

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        if _VARIABLE in self.program.source(node):
            self.switches.append(node)


def _is_of_optimizers(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Attribute) and node.attr.value in _OF_OPTIMIZERS
