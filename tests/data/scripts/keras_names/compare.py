"""What Keras 3 changed in the public names of tf.keras: compares what record.py recorded.

`python tests/data/scripts/keras_names/compare.py` writes migration/keras3/changes.json, which
`keras-mp migrate --keras3` reads. "then" is TF 1.15.0, 2.4.4, 2.10.1 and 2.15.1; "today" is
Keras 3.15.1. Attributes and identifiers that Keras 3.10.0 has not are gone, too; of the names of
then it has the same.
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
RECORDED = ROOT / "tests" / "data" / "keras_names"
TABLE = ROOT / "migration" / "keras3" / "changes.json"
THEN = ("tf-1.15.0", "tf-2.4.4", "tf-2.10.1", "tf-2.15.1")
TODAY = ("tf-2.21.0-keras-3.10.0", "tf-2.21.0-keras-3.15.1")
TODAY_KERAS = ("keras-3.10.0", "keras-3.15.1")
# Kinds of objects, the narrower ones first: metrics were layers once.
KINDS = (
    *("Sequential", "Model", "layers.RNN", "metrics.Metric", "layers.Layer", "losses.Loss"),
    *("optimizers.Optimizer", "callbacks.Callback", "utils.Sequence", "initializers.Initializer"),
    *("optimizers.schedules.LearningRateSchedule", "regularizers.Regularizer"),
)
# Parameters that have another name, and mean the same: (then, today).
RENAMED = (
    *(("alpha", "negative_slope"), ("y", "x"), ("losses", "loss"), ("var_list", "variables")),
    *(("model_variable", "reference_variable"), ("variable_name", "name"), ("text", "input_text")),
    *(("identifier", "config"), ("instance", "obj"), ("input_shape", "shape"), ("l", "l2")),
    *(("model_name", "name"), ("inputs", "sequences"), ("name", "config")),
)


def load(name):
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def of(names, name):
    """Returns what is recorded of a name or of that which it stands for."""
    entry = names.get(name)
    return names.get(entry[1:]) if isinstance(entry, str) and entry.startswith("=") else entry


def first(names, name):
    """Returns the shortest name of what a name stands for."""
    entry = names.get(name)
    return entry[1:] if isinstance(entry, str) and entry.startswith("=") else name


def written(entry):
    """Returns the parameters of a function or a class; None of anything else."""
    return entry.get("new", entry.get("call")) if isinstance(entry, dict) else None


def words(parameters):
    return [word for word in parameters.split(", ") if word]


def positional(parameters):
    """Returns the parameters that may be given by their position."""
    result = []
    for word in words(parameters):
        if word.startswith("*"):
            break
        result.append(word)
    return result


def changed(then, today):
    """Returns what is different of parameters; nothing where all that was given is taken.

    Args:
        then: Those of each version that has it.
        today: Those of today.
    """
    result = {}
    names = words(today)
    takes_all = "*args" in names and "**kwargs" in names
    if not takes_all:
        were = {word for each in then for word in words(each) if not word.startswith("*")}
        gone = sorted(were - set(names))
        if gone:
            result["gone"] = gone
    now = positional(today)
    before = [positional(each) for each in then]
    if "*args" not in names:
        before = [[renamed(word, names) for word in each] for each in before]
        places = range(max(map(len, before), default=0))
        sets = [sorted({each[i] for each in before if i < len(each)}) for i in places]
        other = [i for i in places if i >= len(now) or now[i] not in sets[i]]
        if other:
            result["were"] = ["|".join(names) for names in sets]
            result["are"] = now
            result["from"] = other[0]
    if result and "**kwargs" in names:
        result["more"] = True
    return result


def renamed(word, today):
    """Returns what a parameter is called today, where that is known."""
    new = next((new for old, new in RENAMED if old == word), word)
    return new if new in today and word not in today else word


def members(names, kind):
    """Returns the methods and properties of a kind of objects, inherited ones among them."""
    entry = of(names, kind)
    if not isinstance(entry, dict):
        return {}
    result = {}
    for base in reversed(entry.get("bases", [])):
        result.update(of(names, base).get("has", {}))
    result.update(entry.get("has", {}))
    return result


def compare():
    then = [load(name) for name in THEN]
    today, keras = [load(name) for name in TODAY], [load(name) for name in TODAY_KERAS]
    names = [one["names"] for one in then]
    now = today[-1]["names"]
    had = set().union(*names)
    imported = set(today[-1]["only imported"])
    there = set(now) - imported
    in_keras = set(keras[-1]["names"])
    result = {}
    result["today"] = {
        name: now[name][1:]
        if str(now[name]).startswith("=")
        else "module" * (now[name] == "module")
        for name in sorted(now)
    }
    result["only imported"] = sorted(imported)
    result["not in keras"] = sorted((had | there) - in_keras)
    result["only in keras"] = sorted(in_keras - there)
    result["gone"] = {
        name: next(v for v, one in reversed([*zip(THEN, names)]) if name in one).removeprefix("tf-")
        for name in sorted(had - there)
    }
    result["parameters"] = {}
    for name in sorted({first(now, name) for name in had & there}):
        today_s = written(of(now, name))
        # What a name of today stands for had other names then.
        same = {name, *(other for other, first in result["today"].items() if first == name)}
        thens = {written(of(one, other)) for one in names for other in same if other in one}
        found = changed(sorted(thens - {None}), today_s) if today_s is not None else {}
        if found:
            result["parameters"][name] = found
    result["methods"] = {}
    for kind in KINDS:
        for method, parameters in members(now, kind).items():
            if method.startswith("compute_") or method == "call":
                continue  # they are defined by programs, and called by Keras
            thens = {members(one, kind).get(method) for one in names} - {None, "property"}
            if parameters not in (None, "property") and thens:
                found = changed(sorted(thens), parameters)
                if found:
                    result["methods"][f"{kind}.{method}"] = found
    result["members"] = {}
    for kind in now_objects(today):
        gone = set().union(*(read(one, kind) for one in then)) - now_objects(today)[kind]
        result["members"][kind] = sorted(gone)
    result["kinds"] = {}
    for name in sorted(set(now) | had):
        version = next(
            (one for one in (*reversed(names), now) if isinstance(of(one, name), dict)), {}
        )
        entry = of(version, name) or {}
        if "new" in entry:
            above = {first(version, name), *entry.get("bases", ())}
            found = (kind for kind in KINDS if first(version, kind) in above)
            if (kind := next(found, None)) is not None:
                result["kinds"][name] = kind
    result["calls"] = {
        name: entry["has"]["call"]
        for name, entry in sorted(now.items())
        if isinstance(entry, dict) and "call" in entry.get("has", {}) and name != "layers.Layer"
    }
    modules = {name for one in names for name, of_it in one.items() if of_it == "module"}
    result["identifiers"] = {
        space: sorted(
            name
            for name in set().union(*(one["identifiers"][space] for one in then))
            - set.intersection(*(set(one["identifiers"][space]) for one in today))
            if f"{space}.{name}" not in modules
        )
        for space in today[-1]["identifiers"]
    }
    return result


def read(one, kind):
    return {name.removesuffix("()") for name in one["objects"][kind]}


def now_objects(today):
    kinds = today[-1]["objects"]
    return {kind: set.intersection(*(read(one, kind) for one in today)) for kind in kinds}


def text(table):
    """Returns the table as JSON, with a line for each name."""
    parts = []
    for part, of_part in table.items():
        if isinstance(of_part, dict):
            each = (json.dumps(name) + ": " + json.dumps(entry) for name, entry in of_part.items())
            body = "{\n" + ",\n".join(each) + "\n}"
        else:
            body = "[\n" + ",\n".join(map(json.dumps, of_part)) + "\n]"
        parts.append(json.dumps(part) + ": " + body)
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(text(compare()), encoding="utf-8")
