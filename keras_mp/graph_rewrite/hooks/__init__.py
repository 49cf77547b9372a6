"""Where Keras and the frameworks are entered.

Beside `keras_mp.backends` the only package that names a framework or `keras.src`. From keras.src:

- `backend.numpy`, `.nn`, `.math`, `.core`, `.linalg`, `.image`, `.random`: every keras op, also
  one that a layer calls without `keras.ops`, ends in a function that is looked up there at each
  call. Keras has no public way to see those calls.
- `ops.nn._layer_normalization`, `._rms_normalization`: on torch they call torch's own function.
- `backend.compute_output_spec`: runs a function without computing anything, on every backend.
- `backend.common.name_scope.current_path` and the stack behind it: which layer is being called.
- `backend.SymbolicScope`, `.in_symbolic_scope`, `.get_stateless_scope`: what such a run stands in.
- `backend.get_keras_mask`, `.set_keras_mask`: a mask decides which ops run, and JAX's tracers take
  no attribute.
- `backend.rnn`, `backend.core.while_loop`, `.fori_loop`, `.scan`, `.map`: the loops, whose bodies
  run more often than they are recorded.
- `backend.core.cond`, `.switch`, `.vectorized_map`, `.associative_scan`: they run functions of the
  caller's, on JAX in traces of their own.
- `backend.cast`, `.convert_to_tensor`, `.convert_to_numpy`, also of `backend.core`, and those of
  `backend.random`: they call the framework, but are no ops of a model.
- `backend.core.remat`: what is computed again for a gradient must be computed as it was.

torch's FakeTensorMode has no public name either.

| module        | subject |
| ------------- | ------- |
| installing    | all hooks, installed and removed as one |
| dispatch      | where the ops go that a thread calls |
| ops           | hooks into the ops of Keras |
| operators     | hooks into the operators of tensors |
| own_ops       | hooks into the ops of the framework itself |
| scopes        | hooks into the calls of layers: whose code runs |
| loops         | hooks into loops, recurrent layers and remat |
| abstract_runs | runs without computing |
| state         | the layer, masks and tracing of the running call |
"""

from keras_mp.graph_rewrite.hooks.abstract_runs import (
    added_losses as added_losses,
    assigned_values as assigned_values,
    run_abstractly as run_abstractly,
    unchanged_buffers as unchanged_buffers,
)
from keras_mp.graph_rewrite.hooks.dispatch import (
    dispatching as dispatching,
    is_dispatching as is_dispatching,
)
from keras_mp.graph_rewrite.hooks.installing import (
    install as install,
    is_installed as is_installed,
    uninstall as uninstall,
)
from keras_mp.graph_rewrite.hooks.own_ops import (
    are_seen as are_seen,
    autocast as autocast,
    is_eager as is_eager,
    is_hidden as is_hidden,
    is_weight as is_weight,
)
from keras_mp.graph_rewrite.hooks.scopes import as_now as as_now, in_layer as in_layer
from keras_mp.graph_rewrite.hooks.state import (
    at_compile_time as at_compile_time,
    in_symbolic_call as in_symbolic_call,
    is_compiling as is_compiling,
    is_inference_tensor as is_inference_tensor,
    layer_path as layer_path,
    mask_of as mask_of,
    path_of as path_of,
    runs_eagerly as runs_eagerly,
    set_mask as set_mask,
    traced as traced,
    without_compiler as without_compiler,
)
