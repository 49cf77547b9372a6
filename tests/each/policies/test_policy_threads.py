"""The global policy and scopes, seen from many threads."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import keras
import pytest
from hypothesis import given, settings, strategies as st

from keras_mp.policies.policy import Policy, global_policy, policy_scope, set_global_policy
from tests import programs
from tests.fuzzing import examples

only_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="about threads that TensorFlow starts"
)


@pytest.fixture(autouse=True)
def _restored_policy():
    set_global_policy(None)
    yield
    set_global_policy(None)


class Worker:
    """One thread, started here, that runs what it is given."""

    def __init__(self):
        self._pool = ThreadPoolExecutor(1)
        self(threading.get_ident)

    def __call__(self, function, *args):
        return self._pool.submit(function, *args).result(timeout=60)

    def close(self):
        self._pool.shutdown()


def seen():
    return keras.config.dtype_policy().name


def in_thread(function, *args):
    worker = Worker()
    try:
        return worker(function, *args)
    finally:
        worker.close()


@pytest.fixture
def other():
    worker = Worker()
    yield worker
    worker.close()


class TestGlobalPolicy:
    def test_plain_keras_layers_of_any_thread_see_it(self, other):
        set_global_policy("mixed_bfloat16")
        for thread in (other, in_thread):
            assert thread(lambda: keras.layers.Dense(1).compute_dtype) == "bfloat16"
            assert thread(global_policy) == Policy("mixed_bfloat16")

    def test_any_thread_may_set_it(self, other):
        other(set_global_policy, "float64")
        assert seen() == "float64"

    def test_a_thread_may_leave_it_and_come_back(self, other):
        set_global_policy("mixed_float16")
        other(keras.config.set_dtype_policy, "float64")
        assert (seen(), other(seen)) == ("mixed_float16", "float64")
        set_global_policy("mixed_bfloat16")
        assert (seen(), other(seen)) == ("mixed_bfloat16", "mixed_bfloat16")

    def test_set_floatx_reaches_all_threads(self, other):
        assert other(seen) == "float32"
        keras.config.set_floatx("float64")
        try:
            assert (seen(), other(seen)) == ("float64", "float64")
        finally:
            keras.config.set_floatx("float32")


class TestScope:
    def test_does_not_show_in_other_threads(self, other):
        with policy_scope("mixed_float16"):
            assert (seen(), other(seen)) == ("mixed_float16", "float32")

    def test_does_not_see_what_other_threads_set(self, other):
        with policy_scope("mixed_float16"):
            other(set_global_policy, "float64")
            assert (seen(), other(seen)) == ("mixed_float16", "float64")
            set_global_policy("mixed_bfloat16")
            other(set_global_policy, "float16")
            assert (seen(), other(seen)) == ("mixed_bfloat16", "float16")
        assert seen() == "float16"

    def test_what_other_threads_set_inside_their_scopes_ends_with_those(self, other):
        scope = policy_scope("mixed_float16")
        other(scope.__enter__)
        other(set_global_policy, "float64")
        assert (seen(), other(seen), in_thread(seen)) == ("float64",) * 3
        set_global_policy("bfloat16")
        assert (seen(), other(seen)) == ("bfloat16", "float64")
        other(scope.__exit__, None, None, None)
        assert (seen(), other(seen)) == ("bfloat16", "bfloat16")

    def test_threads_started_inside_see_it(self):
        with policy_scope("float64"), policy_scope("mixed_bfloat16"):
            assert in_thread(lambda: keras.layers.Dense(1).compute_dtype) == "bfloat16"
            assert in_thread(in_thread, seen) == "mixed_bfloat16"

    def test_subclasses_of_thread_see_it(self):
        class Replica(threading.Thread):
            def run(self):
                self.found = seen()

        with policy_scope("mixed_float16"):
            replica = Replica()
            replica.start()
            replica.join()
        assert replica.found == "mixed_float16"

    def test_threads_started_inside_follow_the_thread_that_entered_it(self):
        with policy_scope("float64"):
            set_global_policy("mixed_bfloat16")
            keras.config.set_dtype_policy("float16")
            assert (seen(), in_thread(seen)) == ("float16", "mixed_bfloat16")

    def test_threads_started_inside_do_not_change_it(self):
        with policy_scope("mixed_float16"):
            in_thread(set_global_policy, "float64")
            in_thread(keras.config.set_dtype_policy, "float64")
            assert (seen(), in_thread(seen)) == ("mixed_float16", "mixed_float16")
        assert seen() == "float32"

    def test_threads_that_outlive_it_fall_back(self):
        with ThreadPoolExecutor(1) as pool:
            with policy_scope("float64"):
                with policy_scope("mixed_float16"):
                    assert pool.submit(seen).result() == "mixed_float16"
                    pool.submit(keras.config.set_dtype_policy, "float16").result()
                    assert pool.submit(seen).result() == "float16"
                assert pool.submit(seen).result() == "float64"
            assert pool.submit(seen).result() == "float32"
            set_global_policy("mixed_bfloat16")
            assert pool.submit(seen).result() == "mixed_bfloat16"

    def test_threads_started_inside_may_enter_their_own(self):
        def nested():
            with policy_scope("float64"):
                inside = seen()
            return inside, seen()

        with policy_scope("mixed_float16"):
            assert in_thread(nested) == ("float64", "mixed_float16")

    def test_a_thread_that_takes_over_an_ident_is_another_thread(self):
        idents = set()

        def change():
            idents.add(threading.get_ident())
            before = seen()
            set_global_policy("float64")
            return before

        with policy_scope("mixed_float16"):
            found = [in_thread(change) for _ in range(20)]
        assert len(idents) < 20, "no ident was used twice: the test shows nothing"
        assert found == ["mixed_float16"] * 20

    def test_scopes_of_two_threads_never_mix(self):
        names, rounds = ["mixed_float16", "mixed_bfloat16"], 50
        barrier = threading.Barrier(2, timeout=60)

        def work(name):
            found = set()
            for _ in range(rounds):
                barrier.wait()
                with policy_scope(name):
                    barrier.wait()
                    found |= {seen(), in_thread(seen)}
                    set_global_policy(name)
                    found |= {seen(), in_thread(seen)}
                barrier.wait()
                found.add(("outside", seen()))
            return found

        start = threading.Thread.start
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(work, names))
        assert found == [{name, ("outside", "float32")} for name in names]
        assert threading.Thread.start is start

    def test_one_scope_may_be_shared(self, other):
        scope = policy_scope("mixed_float16")
        with scope:
            other(scope.__enter__)
        assert (seen(), other(seen)) == ("float32", "mixed_float16")
        other(scope.__exit__, None, None, None)
        assert other(seen) == "float32"

    def test_holds_for_one_asyncio_task(self):
        async def task(name):
            with policy_scope(name):
                await asyncio.sleep(0)
                keras.config.set_dtype_policy("float64" if name == "float16" else name)
                await asyncio.sleep(0)
                return seen(), await asyncio.to_thread(seen)

        async def both():
            return await asyncio.gather(task("float16"), task("bfloat16"))

        # to_thread carries the scope, and not what was set inside for one thread.
        assert asyncio.run(both()) == [("float64", "float16"), ("bfloat16", "bfloat16")]
        assert seen() == "float32"


NAMES = st.sampled_from(["mixed_float16", "mixed_bfloat16", "float16", "float64", None])
THREADS = st.integers(0, 3)
STEPS = st.one_of(
    st.tuples(st.just("set_global"), THREADS, NAMES),
    st.tuples(st.just("set_here"), THREADS, NAMES.filter(bool)),
    st.tuples(st.just("enter"), THREADS, NAMES),
    st.tuples(st.just("exit"), THREADS, st.none()),
    st.tuples(st.just("start"), THREADS, st.none()),
)


class ByHand:
    """The rule written again: remembers everything, and searches backwards."""

    def __init__(self):
        self.history = []  # (kind, thread, name, scope it was made in)
        self.inherited = [[]]
        self.entered = [[]]
        self.ended = set()

    def scope(self, thread):
        scopes = self.inherited[thread] + self.entered[thread]
        return next((scope for scope in reversed(scopes) if scope not in self.ended), None)

    def step(self, kind, thread, name):
        if kind == "start":
            self.inherited.append(self.inherited[thread] + self.entered[thread])
            self.entered.append([])
        elif kind == "exit":
            self.ended.add(self.entered[thread].pop())
        else:
            self.history.append((kind, thread, name, self.scope(thread)))
            if kind == "enter":
                self.entered[thread].append(len(self.history))

    def seen(self, thread):
        scope = self.scope(thread)
        for number in range(len(self.history), 0, -1):
            kind, by, name, made_in = self.history[number - 1]
            if number == scope:
                holds = True
            elif scope:
                owner = self.history[scope - 1][1]
                sees = {"set_global": (thread, owner), "set_here": (thread,), "enter": ()}[kind]
                holds = made_in == scope and by in sees
            elif kind == "set_global":
                holds = made_in not in self.ended
            else:
                holds = (kind, by, made_in) == ("set_here", thread, None)
            if holds:
                return name or "float32"
        return "float32"


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(STEPS, max_size=20))
def test_agrees_with_the_rule_by_hand(steps):
    set_global_policy(None)
    by_hand, workers, scopes = ByHand(), [Worker()], [[]]
    try:
        for kind, thread, name in steps:
            thread %= len(workers)
            worker = workers[thread]
            if kind == "exit" and not scopes[thread]:
                continue
            if kind == "set_global":
                worker(set_global_policy, name)
            elif kind == "set_here":
                worker(keras.config.set_dtype_policy, name)
            elif kind == "enter":
                scopes[thread].append(policy_scope(name))
                worker(scopes[thread][-1].__enter__)
            elif kind == "exit":
                worker(scopes[thread].pop().__exit__, None, None, None)
            else:
                workers.append(worker(Worker))
                scopes.append([])
            by_hand.step(kind, thread, name)
            expected = [by_hand.seen(thread) for thread in range(len(workers))]
            assert [worker(seen) for worker in workers] == expected
    finally:
        for worker, own in zip(workers, scopes, strict=True):
            for scope in reversed(own):
                worker(scope.__exit__, None, None, None)
            worker.close()


@only_tensorflow
def test_tf_data_generators_see_the_global_policy():
    import tensorflow as tf

    threads, found = set(), set()

    def generate():
        threads.add(threading.get_ident())
        found.add((seen(), keras.layers.Dense(1).compute_dtype))
        yield 0.0

    set_global_policy("mixed_bfloat16")
    spec = tf.TensorSpec((), tf.float32)
    assert len(list(tf.data.Dataset.from_generator(generate, output_signature=spec))) == 1
    assert threads.isdisjoint({threading.get_ident()}), "TensorFlow used this thread"
    assert found == {("mixed_bfloat16", "bfloat16")}


# Setting the policy comes first: looking for slow devices must not initialise them.
MIRRORED = """
import threading
import keras, tensorflow as tf
from keras_mp.policies.policy import global_policy, policy_scope, set_global_policy

set_global_policy("mixed_float16")
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def replicas():
    found = []
    def step():
        names = global_policy().name, keras.layers.ReLU().compute_dtype
        found.append((threading.get_ident(), *names))
    strategy.run(step)
    one, other = found
    assert one[0] != other[0] and one[1:] == other[1:], found
    return " ".join(one[1:])

print(replicas())
with policy_scope("float64"):
    print(replicas())
    tf.function(lambda: print(replicas()), autograph=False)()
    set_global_policy("mixed_bfloat16")
    print(replicas())
print(replicas())
"""


@only_tensorflow
def test_replicas_see_the_global_policy_and_the_scope():
    printed = programs.run("-c", MIRRORED, timeout=120, imported=True)
    outside, inside, changed = (
        "mixed_float16 float16",
        "float64 float64",
        "mixed_bfloat16 bfloat16",
    )
    assert printed.splitlines() == [outside, inside, inside, changed, outside]
