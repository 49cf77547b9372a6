"""The pictures of the docs, docs/pictures: made of short runs on JAX.

KERAS_BACKEND=jax python -m tests.pictures             # draws them anew: check, then commit
KERAS_BACKEND=jax python -m tests.pictures --migrate   # first migrates old models of tests/data

Each is an SVG that follows the reader's light or dark mode, and loads nothing. HTML of keras-mp is
embedded as HTML. The ledger is kept in tests/data, because its times differ in each run.
"""

import argparse
import json
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import keras
from sklearn.datasets import load_digits

import keras_mp
from keras_mp.diagnosis.ranges import drawing as drawing_of_ranges
from keras_mp.migration import ledger_page
from keras_mp.migration.ledger_reading import read_ledger
from keras_mp.monitor import drawing
from keras_mp.monitor.html_report import html_report
from keras_mp.monitor.run_folder import RunFolder
from keras_mp.rendering.pictures import svg
from keras_mp.rendering.style import DARK, LIGHT, PAGE, variables
from tests.durations import shared

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
LEDGER = ROOT / "tests" / "data" / "old_models.jsonl"
OLD = ROOT / "tests" / "data" / "legacy"
# Folders of OLD, one for each version of TensorFlow.
OF_THE_LEDGER = ("tf115", "tf210", "tf211", "tf213", "tf23")
WIDTH = 640  # pixels: also readable at 400
STARTED = "2026-11-28T06:00:00+00:00"
BOX = "body { margin: 0; } .keras-mp { min-height: 100vh; box-sizing: border-box; }"
COLOURS = (
    f":root {{ color-scheme: light dark; {variables(LIGHT)} }} "
    f"@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}"
)
# HTML that is not XML: elements that are never closed, and attributes without a value.
_OPEN = re.compile(r"<(wbr|br|link|meta)\b([^>]*)>")
_BARE = re.compile(r"<(\w+)((?: [\w-]+=\"[^\"]*\")*) (open|hidden)>")


# What is drawn.


@shared
def train():
    """Returns a small model of handwritten digits that has trained, and the folder of its run."""
    keras.utils.set_random_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = (x[:1600] / 16).astype("float32"), y[:1600].astype("int32")
    with keras_mp.policy_scope("mixed_float16"):
        model = keras.Sequential(
            [
                keras.Input((64,)),
                keras.layers.Dense(64, activation="relu", name="first"),
                keras.layers.Dense(64, activation="relu", name="second"),
                keras.layers.Dense(10, dtype="float32", activation="softmax", name="digits"),
            ],
            name="digits_mlp",
        )
    # A short growth period, so that the scale grows, overflows and falls within few steps.
    optimizer = keras_mp.LossScaleOptimizer(
        keras.optimizers.Adam(1e-3), dynamic_growth_steps=20, diagnose=True
    )
    model.compile(optimizer, "sparse_categorical_crossentropy")
    folder = Path(tempfile.mkdtemp())
    monitor = keras_mp.LossScaleMonitor(folder)
    model.fit(x, y, batch_size=32, epochs=5, verbose=0, callbacks=[monitor])
    ranges = keras_mp.range_report(model, (x[:256], y[:256]), steps=2)
    run = RunFolder.read(folder)
    run.run["started"] = STARTED
    return run, ranges


def loss_scale():
    """The loss scale by step."""
    run, _ = train()
    return _chart(drawing.chart(run.trace))


def precision_repair():
    """The loss scale before and after a repair."""
    keras.utils.set_random_seed(0)
    with keras_mp.policy_scope("mixed_float16"):
        large = keras.initializers.Constant(4e4)
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(8, activation="relu", name="hidden"),
                keras.layers.Dense(1, kernel_initializer=large, name="large"),
                keras.layers.Rescaling(1e-5, dtype="float32", name="smaller"),
            ]
        )
    model.compile(keras_mp.LossScaleOptimizer(keras.optimizers.Adam(1e-4)), "mse")
    monitor, repair = keras_mp.LossScaleMonitor(trace=True), keras_mp.PrecisionRepair()
    x, y = keras.ops.ones((128, 4)), keras.ops.ones((128, 1))
    model.fit(x, y, batch_size=2, verbose=0, callbacks=[repair, monitor])
    assert repair.repairs.layers == ("large",)
    return _chart(drawing.chart(monitor.trace))


def report():
    """The first screen of the page that `keras-mp report` writes."""
    run, _ = train()
    page = html_report(run).replace(
        svg(drawing.chart(run.trace)), svg(drawing.chart(run.trace), 6.5)
    )
    shown = page[page.index("<main>") : page.index("<h2>Layers</h2>")]
    return _html(f'<div class="keras-mp">{shown}</main></div>', PAGE + BOX, 720)


def ranges():
    """How large values are, by layer."""
    _, found = train()
    chart = drawing_of_ranges.chart(found.to_dict())
    # Columns for which a narrow picture has no room.
    maps = [replace(each, numbers=None) for each in chart.heat_maps]
    return _chart(replace(chart, heat_maps=maps, note=""))


def explain():
    """The output of `explain` in a notebook."""
    with keras_mp.policy_scope("mixed_float16"):
        model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Conv2D(16, 3, activation="relu", name="conv"),
                keras.layers.BatchNormalization(name="norm"),
                keras.layers.Flatten(name="flatten"),
                keras.layers.Dense(10, activation="softmax", name="digits"),
            ],
            name="net",
        )
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.Adam(1e-3))
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return _html(keras_mp.explain(model)._repr_html_(), BOX, 850)


def graph_rewrite():
    """The layers of a float32 model, and the dtypes that the graph rewrite gives them."""
    import matplotlib as mpl

    model = keras.Sequential(
        [
            keras.Input((28, 28, 1), name="images"),
            keras.layers.Conv2D(16, 3, name="conv"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.ReLU(name="relu"),
            keras.layers.MaxPooling2D(name="pool"),
            keras.layers.Flatten(name="flatten"),
            keras.layers.Dense(10, activation="softmax", name="digits"),
        ],
        name="classifier",
    )
    with tempfile.TemporaryDirectory() as folder, mpl.rc_context({"svg.fonttype": "none"}):
        path = Path(folder) / "painted.svg"
        keras_mp.graph_rewrite.report(model).plot(path)
        drawn = path.read_text("utf-8")
    # matplotlib's version, and names that depend on it.
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    for i, name in enumerate(dict.fromkeys(re.findall(r'"([pm][0-9a-f]{10})"', drawn))):
        drawn = drawn.replace(name, f"id{i}")
    inverted = "svg { filter: invert(0.92) hue-rotate(180deg); }"
    dark = f"@media (prefers-color-scheme: dark) {{ {inverted} }}"
    return drawn.replace('<style type="text/css">', f'<style type="text/css">{dark}', 1)


def ledger():
    """The first screen of the page of a ledger."""
    page = ledger_page.ledger_page(read_ledger(LEDGER), "new")
    shown = page[page.index("<main>") : page.index("<h2>The largest")]
    style = page[page.index("<style>") + len("<style>") : page.index("</style>")]
    return _html(f'<div class="keras-mp">{shown}</main></div>', style + BOX, 812)


DRAWN = {
    "loss-scale": loss_scale,
    "precision-repair": precision_repair,
    "report": report,
    "ranges": ranges,
    "explain": explain,
    "graph-rewrite": graph_rewrite,
    "ledger": ledger,
}


def migrate():
    """Migrates old models, and keeps the ledger, without the names of this machine."""
    from keras_mp.migration.cli import main

    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        old.mkdir()
        for name in OF_THE_LEDGER:
            shutil.copytree(OLD / name, old / name)
        main(["migrate", str(old), "-o", f"{folder}/new", "--jobs", "1"])
        lines = (Path(folder) / "new" / "migration.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in lines.replace(folder, "").splitlines()]
    for row in rows:
        row["host"] = "host"
    LEDGER.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


# How it becomes a picture.


def _chart(chart):
    """Returns a chart as a file."""
    drawn = svg(chart, width=5.5)
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn).groups()
    size = f'width="{WIDTH}" height="{round(WIDTH / float(width) * float(height))}"'
    font = 'svg { background: var(--ground); font-family: system-ui, "DejaVu Sans", sans-serif; }'
    drawn = re.sub(r' style="[^"]*"', "", drawn, count=1)
    drawn = drawn.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" {size} ', 1)
    return drawn.replace(">", f"><style>{COLOURS}{font}</style>", 1)


def _html(text, css, height):
    """Returns the top of a page as an SVG."""
    text = _BARE.sub(r'<\1\2 \3="">', _OPEN.sub(r"<\1\2/>", text))
    text = text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">'
        '<foreignObject width="100%" height="100%">'
        f'<body xmlns="http://www.w3.org/1999/xhtml">{text}<style>{css}</style></body>'
        "</foreignObject></svg>\n"
    )


def main(argv=None):
    """Writes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--migrate", action="store_true", help="write the ledger anew, too")
    if parser.parse_args(argv).migrate:
        migrate()
    for name, draw in DRAWN.items():
        (PICTURES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
