"""Python functions that Keras 1 and 2 wrote into files as byte code, read without running them.

`from_config` takes what a `Lambda` layer has in its config, `read_function` the bytes. Both give
a `Function`: an expression, as nodes of `ast`, or a `CodeError` that says what stands against it.
"""

from keras_mp.compat.code_objects.errors import CodeError
from keras_mp.compat.code_objects.expressions import Array
from keras_mp.compat.code_objects.keras_configs import from_config
from keras_mp.compat.code_objects.reading import Function, read_function, shortened

__all__ = ["Array", "CodeError", "Function", "from_config", "read_function", "shortened"]
