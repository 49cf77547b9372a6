"""Functions of TensorFlow that were given to a `Lambda` layer as they are: `Lambda(tf.abs)`.

TensorFlow wraps most of its functions in one that dispatches, and Keras saved the code of that.

| TensorFlow | the code that was saved | what says which function it was |
| --- | --- | --- |
| 1.15 to 2.6 | `wrapper` in util/dispatch.py | the closure has its name twice |
| 1.15 | `new_func` in util/deprecation.py | nothing |
| 2.7 to 2.15 | `error_handler` in util/traceback_utils.py | nothing |
| all | the function itself, in ops/gen_*_ops.py | its own name |

Where the closure has a name, `module` of the layer's config says where it is from. TF 2.15 has one
more, in ops/weak_tensor_ops.py, that Keras could not write.
Source: what TF 1.15, 2.3, 2.6, 2.10 and 2.15 write; python/util/dispatch.py of each.
"""

import re
from collections.abc import Sequence

from keras_mp.compat.code_objects.errors import Refused
from keras_mp.compat.code_objects.marshalled import Code
from keras_mp.compat.code_objects.modules import customary

NOT_SAID = "stands around a function of TensorFlow, and the file does not say which one it was"

_GENERATED = re.compile(r".*/tensorflow(?:_core)?/python/ops/gen_(?P<of>\w+)_ops\.py")
_WRAPPER = re.compile(
    r".*/tensorflow(?:_core)?/python/"
    r"(?:util/(?:dispatch|traceback_utils|deprecation)|ops/weak_tensor_ops)\.py"
)
_WRAPPERS = frozenset({"wrapper", "error_handler", "op_dispatch_handler", "new_func"})
# Of tensorflow.python.ops -> below `tf`.
_PUBLIC = {
    "math": "tf.math",
    "special_math": "tf.math",
    "array": "tf",
    "nn": "tf.nn",
    "image": "tf.image",
    "linalg": "tf.linalg",
    "clip": "tf",
}
_KERAS = re.compile(r"(?:tensorflow\.python\.)?keras(?:\.src|\.api)?\.(?P<of>backend|activations)")
_OPS = re.compile(
    r"tensorflow(?:_core)?\.python\.ops\.(?:gen_)?(?P<of>\w+?)(?:_ops|_ops_impl|_impl)?"
)
_VERSION = re.compile(r"_v[12]$")


def wrapped(code: Code, closure: Sequence[object], module: object) -> str | None:
    """Returns the name of the function of TensorFlow that a code object stands for.

    Args:
        code: What was saved.
        closure: What is known of its closure.
        module: `module` of the layer's config, if that is known.

    Returns:
        Such as "tf.math.abs"; None if it is a function of the program.

    Raises:
        Refused: It is one of TensorFlow, and which is not said.
    """
    file = code.file.replace("\\", "/")
    generated = _GENERATED.fullmatch(file)
    if generated:
        return _public(generated["of"], code.name)
    if code.name not in _WRAPPERS or not _WRAPPER.fullmatch(file):
        return None
    name, *others = closure or (None,)
    if not isinstance(name, str) or others != [name]:
        raise Refused(NOT_SAID)
    of_keras, of_ops = (
        pattern.fullmatch(module) if isinstance(module, str) else None for pattern in (_KERAS, _OPS)
    )
    if of_keras:
        return customary(f"keras.{of_keras['of']}.{name}")
    if of_ops:
        return _public(of_ops["of"], name)
    raise Refused(NOT_SAID)


def _public(of: str, name: str) -> str:
    if of not in _PUBLIC or name.startswith("_"):
        raise Refused(NOT_SAID)
    return f"{_PUBLIC[of]}.{_VERSION.sub('', name)}"
