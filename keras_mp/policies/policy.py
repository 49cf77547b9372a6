"""Dtype policies: a hashable `Policy`, one global policy for the whole process, and scopes.

Keras keeps its policy per thread. Here every change of policy is an `Event`, and `choose` picks
the one that a thread sees; `backends/keras_hooks.py` makes Keras ask. Knows nothing of optimizers.
"""

import functools
import itertools
import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import keras

from keras_mp.backends import keras_hooks
from keras_mp.backends.common import devices
from keras_mp.policies import compile_advice, graph_rewrite_switch as switch

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN = (keras.DTypePolicy, keras.FloatDTypePolicy)


# FloatDTypePolicy is Keras' own alias of DTypePolicy. A subclass of both has the first word in
# `plain == ours`, where Keras' __eq__ would refuse every other class.
class Policy(keras.FloatDTypePolicy):
    """A `keras.DTypePolicy` that is hashable and always of a floating-point dtype.

    Use it wherever Keras takes a dtype policy. It equals a `keras.DTypePolicy` of the same name,
    and is saved as one: a model that holds it opens without keras_mp.

    Which to take: "mixed_bfloat16" where the hardware computes in bfloat16 (NVIDIA since Ampere,
    TPUs, newer CPUs); it needs no loss scale. Else "mixed_float16", with `LossScaleOptimizer`. Both
    keep weights in float32. "bfloat16" and "float16" keep them in 16 bits, in half the memory, and
    Keras' optimizers alone do not train them: see `sixteen_bit_policy` and `MasterWeights`.

    Args:
        name: "mixed_float16", "mixed_bfloat16", or the name of a floating-point dtype. None is
            the name of the global policy at this moment.

    Raises:
        ValueError: `name` is not one of those.
        TypeError: `name` is not a string.

    >>> policy = Policy("mixed_float16")
    >>> policy
    <Policy "mixed_float16">
    >>> policy.compute_dtype, policy.variable_dtype
    ('float16', 'float32')
    >>> policy == keras.DTypePolicy("mixed_float16")
    True
    >>> {policy: "fast"}[Policy("mixed_float16")]
    'fast'
    >>> keras.layers.Dense(1, dtype=policy).compute_dtype
    'float16'
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        keras_hooks.serialize_as(cls, "keras.DTypePolicy")

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        _check_float(self)

    def __reduce__(self) -> tuple[type["Policy"], tuple[str]]:
        return type(self), (self.name,)

    def __repr__(self) -> str:
        return f'<{type(self).__name__} "{self.name}">'

    def __eq__(self, other: object) -> bool:
        if type(other) not in _PLAIN and not isinstance(other, Policy):
            return False
        return bool(self.name == other.name)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.name)


keras_hooks.serialize_as(Policy, "keras.DTypePolicy")


def set_global_policy(policy: str | keras.DTypePolicy | None) -> None:
    """Sets the policy of every layer that is built without a `dtype`, in all threads.

    It reaches layers that plain Keras code builds, and survives `keras.utils.clear_session`.
    A thread that calls `keras.config.set_dtype_policy` later goes its own way, and inside a
    `policy_scope` a thread does not see what others set. What is set inside a scope ends with it.

    The first call with a float16 policy warns where float16 is slow. From then on, the first
    `compile` that uses Keras' own LossScaleOptimizer warns, too: for a string or a plain optimizer,
    without `auto_wrap`. `logging.getLogger("keras_mp").setLevel(logging.ERROR)` silences both.

    Args:
        policy: A policy or its name, quantized ones included. None follows
            `keras.config.floatx()`, as without any policy.

    Raises:
        ValueError: It is not the name of a policy, or its dtypes are not floating-point.
        TypeError: It is neither a name nor a policy.

    >>> set_global_policy("mixed_bfloat16")
    >>> keras.layers.Dense(1).compute_dtype
    'bfloat16'
    >>> set_global_policy(None)
    >>> keras.layers.Dense(1).compute_dtype
    'float32'
    """
    global _shared
    chosen = _resolve(policy)
    watch()
    with _lock:
        _shared = add(_shared, _event(chosen))
    _prepare_for(chosen)


def global_policy() -> keras.DTypePolicy:
    """Returns the policy that the calling thread gives to new layers.

    A `Policy`, or for a quantized policy Keras' own object.

    >>> global_policy()
    <Policy "float32">
    """
    watch()
    policy = keras.config.dtype_policy()
    if type(policy) in _PLAIN and _is_float(policy):
        return Policy(policy.name)
    return policy


class policy_scope:
    """Sets the policy for a `with` block, or for a decorated function.

    It holds for the thread, or the asyncio task, that enters it, and for threads that start
    inside it, such as the replicas of `tf.distribute.MirroredStrategy`. Inside it, no other thread
    changes the policy; threads that it started follow its `set_global_policy`. What is set inside
    it ends with it. Threads that were started before, such as those of an older pool, do not see
    it.

    Args:
        policy: As for `set_global_policy`.

    >>> with policy_scope("mixed_bfloat16") as policy:
    ...     layer = keras.layers.Dense(1)
    >>> layer.compute_dtype, policy.variable_dtype, keras.layers.Dense(1).compute_dtype
    ('bfloat16', 'float32', 'float32')
    """

    def __init__(self, policy: str | keras.DTypePolicy | None) -> None:
        self._policy = _resolve(policy)
        self._numbers: list[int] = []  # of every entry that has not ended, in any thread

    def __enter__(self) -> keras.DTypePolicy:
        global _stop_handing_down
        watch()
        _prepare_for(self._policy)
        with _lock:
            event = _event(self._policy)
            if not _scopes:
                _stop_handing_down = keras_hooks.hand_down(_chain)
            _scopes[event.number] = event
        self._numbers.append(event.number)
        _entered.set((event.number, *_entered.get()))
        return global_policy()

    def __exit__(self, *error: object) -> None:
        global _shared
        mine = (number for number in _entered.get() if number in self._numbers)
        # A generator can be closed in another context than the one that entered the scope.
        number = next(mine, self._numbers[-1])
        self._numbers.remove(number)
        _entered.set(tuple(other for other in _entered.get() if other != number))
        with _lock:
            del _scopes[number]
            _shared = without(_shared, number)
            if not _scopes:
                _stop_handing_down()
        keras_hooks.remember(without(_own(), number))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return inside


@dataclass(frozen=True, slots=True)
class Event:
    """One change of policy, or the entry of a scope.

    Attributes:
        number: Its place in time among all events of the process. 0 is what Keras held before us.
        policy: None follows `keras.config.floatx()`.
        scope: The number of the scope that it was made in, 0 outside.
        thread: The token of the thread that made it.
    """

    number: int
    policy: Any
    scope: int
    thread: int


def choose(
    scope: Event | None, shared: Iterable[Event], own: Iterable[Event], thread: int
) -> Event | None:
    """Returns the event that holds for a thread: the latest of those that it sees.

    | the thread is  | it sees                                                        |
    | -------------- | -------------------------------------------------------------- |
    | inside a scope | the scope; of `shared` what it, or the thread that entered the |
    |                | scope, set inside; of `own` what was set inside                |
    | outside        | all of `shared`; of `own` what was set outside                 |

    Args:
        scope: The innermost scope of the thread, or None.
        shared: What `set_global_policy` set, without what ended with its scope.
        own: What `keras.config.set_dtype_policy` set in this thread.
        thread: The token of this thread.

    >>> everywhere = Event(1, "mixed_float16", scope=0, thread=1)
    >>> scope = Event(2, "mixed_bfloat16", scope=0, thread=2)
    >>> later = Event(3, "float64", scope=0, thread=1)
    >>> choose(None, [everywhere, later], [], thread=2).policy
    'float64'
    >>> choose(scope, [everywhere, later], [], thread=2).policy
    'mixed_bfloat16'
    """
    if scope is None:
        seen = [*shared, *(event for event in own if not event.scope)]
    else:
        inside = (event for event in (*shared, *own) if event.scope == scope.number)
        seen = [scope, *(event for event in inside if event.thread in (thread, scope.thread))]
    return max(seen, key=lambda event: event.number, default=None)


def add(events: tuple[Event, ...], new: Event) -> tuple[Event, ...]:
    """Returns `events` and `new`, less what nobody can see any more because of `new`."""
    kept = (
        event
        for event in events
        if event.scope != new.scope or (new.scope and event.thread != new.thread)
    )
    return (*kept, new)


def without(events: Iterable[Event], scope: int) -> tuple[Event, ...]:
    """Returns `events` less those made inside `scope`, which ended."""
    return tuple(event for event in events if event.scope != scope)


class _Token(threading.local):
    """A number of each thread that, unlike its ident, no later thread gets again."""

    def __init__(self) -> None:
        self.number = next(_numbers)


# Held to write _shared and _scopes; taken again where garbage collection closes a generator that
# is inside a scope.
_lock = threading.RLock()
_numbers = itertools.count(1)
_thread = _Token()
_shared: tuple[Event, ...] = ()
_scopes: dict[int, Event] = {}  # those that have not ended
_entered: ContextVar[tuple[int, ...]] = ContextVar("keras_mp_policy_scopes", default=())


def _stop_handing_down() -> None: ...


def watch() -> None:
    """Sees every policy that is set from now on, by whatever function."""
    keras_hooks.install(_effective, _wrote)


def _effective() -> Any:
    event = choose(_scope(), _shared, _own(), _thread.number)
    if event is None or event.policy is None:
        return _named(keras.config.floatx())
    return event.policy


def _wrote(policy: Any) -> None:
    with _lock:
        living = (event for event in _own() if not event.scope or event.scope in _scopes)
        keras_hooks.remember(add(tuple(living), _event(policy)))


def _own() -> tuple[Event, ...]:
    events: tuple[Event, ...] | None = keras_hooks.remembered()
    if events is None:
        before = keras_hooks.held_by_keras()
        return () if before is None else (Event(0, before, 0, _thread.number),)
    return events


def _event(policy: Any) -> Event:
    switch.check_policy(policy)
    scope = _scope()
    return Event(next(_numbers), policy, scope.number if scope else 0, _thread.number)


def _scope() -> Event | None:
    # Asking for the current thread leaves a trace of threads that Python did not start.
    chain = _chain() if _scopes else ()
    return next(filter(None, map(_scopes.get, chain)), None)


def _chain() -> tuple[int, ...]:
    """Returns the scopes that this thread entered and those that it inherited, innermost first."""
    return _entered.get() + keras_hooks.inherited()


_named = functools.cache(Policy)


def _resolve(policy: str | keras.DTypePolicy | None) -> Any:
    if isinstance(policy, str) and "_from_" in policy:
        policy = keras.dtype_policies.get(policy)
    if policy is not None and not isinstance(policy, keras.DTypePolicy):
        return Policy(policy)
    if policy is not None:
        _check_float(policy)
    return policy


def _is_float(policy: keras.DTypePolicy) -> bool:
    return all(map(keras.backend.is_float_dtype, (policy.compute_dtype, policy.variable_dtype)))


def _check_float(policy: keras.DTypePolicy) -> None:
    if not _is_float(policy):
        raise ValueError(
            f"The policy {policy.name!r} computes in {policy.compute_dtype}: a policy needs a "
            "floating-point dtype. Use 'mixed_float16', 'mixed_bfloat16', or the name of such a "
            "dtype, for example 'float32'."
        )


def _prepare_for(policy: Any) -> None:
    if policy is not None and policy.compute_dtype in ("float16", "bfloat16"):
        keras_hooks.mend_layers_in_16_bits()
    if policy is not None and policy.compute_dtype == "float16":
        devices.warn_if_slow()
        compile_advice.watch()
