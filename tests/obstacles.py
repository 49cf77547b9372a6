"""Helpers for tests of `migration/to_backend`: the findings of one rule for a program."""

from keras_mp.migration.code.rewriting import Options, rewrite

HEAD = """\
import tensorflow as tf
import keras
from tensorflow.keras import backend as K
import horovod.tensorflow as hvd
"""


def found(lines, rule, target="jax", head=HEAD):
    """Returns line -> message, from a rule for lines below imports; the first line is 1."""
    source = head + lines
    compile(source, "program", "exec")
    result = rewrite(source, Options(target=target))
    assert result.text == rewrite(source).text, "of that nothing is edited"
    findings = [one for one in result.findings if one.rule == rule]
    assert all(one.verdict == "manual" for one in findings)
    return {one.line - head.count("\n"): one.message for one in findings}


def messages(lines, rule, target="jax"):
    """Returns the messages of a rule, without the link to the recipe."""
    result = rewrite(HEAD + lines, Options(target=target)).findings
    return [one.message.rpartition("; ")[0] for one in result if one.rule == rule]
