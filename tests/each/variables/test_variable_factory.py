"""Variables of the parts: where the optimizer, its files and object graphs find them."""

from keras import ops

from tests import core_parts


def test_a_variable_is_the_optimizers():
    optimizer, variables = core_parts.places()
    before = len(optimizer.variables)
    added = variables.add("thing", 3)
    assert optimizer.variables[before:] == [added]
    assert optimizer._thing is added
    assert (added.name, int(ops.convert_to_numpy(added))) == ("thing", 3)
    assert variables._extra_state._variables == {}


def test_the_keys_of_object_graphs_have_no_underscore():
    optimizer, variables = core_parts.places()
    scale = variables.add("dynamic_scale", 8.0, "float32")
    assert optimizer.dynamic_scale is scale
    assert not hasattr(optimizer, "_dynamic_scale")


def test_what_files_keep_beside():
    _, variables = core_parts.places()
    one = variables.add_extra("one", 1)
    others = {name: variables.add(name) for name in ("two", "three")}
    variables.save_extra(**others)
    store = {}
    variables._extra_state.save_own_variables(store)
    assert {name: int(value) for name, value in store.items()} == {"one": 1, "two": 0, "three": 0}
    variables._extra_state.load_own_variables({"one": ops.convert_to_numpy(one) + 4})
    assert int(ops.convert_to_numpy(one)) == 5
