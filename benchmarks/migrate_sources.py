"""How long `keras-mp migrate` takes for a folder of source code, and where the time goes.

python benchmarks/migrate_sources.py [FILES] [--concerned N] [--lines N] [--jobs N]

Makes the folder, of files that have nothing to do with mixed precision and some that have, runs the
command on it in a process of its own, then each of its steps here, one file after the other.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLAIN = '''
def step_{i}(model, batch, rate):
    """Returns the loss of a batch."""
    inputs, targets = batch
    predictions = model(inputs, training=True)
    loss = tf.reduce_mean((predictions - targets) ** 2)  # of step {i}
    return {{"loss": loss, "rate": rate * 0.5 ** {i}}}

'''
CONCERNED = '''
def scaled_step_{i}(model, batch):
    """Trains on a batch."""
    inputs, targets = batch
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
        scaled = opt.get_scaled_loss(loss)
    gradients = tape.gradient(scaled, model.trainable_variables)
    opt.apply_gradients(zip(opt.get_unscaled_gradients(gradients), model.trainable_variables))

'''
HEAD = "import tensorflow as tf\n"
OLD_HEAD = """\
import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mixed_precision

mixed_precision.set_policy("mixed_float16")
opt = mixed_precision.LossScaleOptimizer(tf.keras.optimizers.Adam(), loss_scale="dynamic")
"""


def source(lines: int, *, concerned: bool) -> str:
    """Returns a module of that many lines; a tenth of one that is concerned is about it."""
    text, i = OLD_HEAD if concerned else HEAD, 0
    while True:
        more = (CONCERNED if concerned and i % 10 == 0 else PLAIN).format(i=i)
        left = lines - text.count("\n")
        if more.count("\n") > left:
            return text + left * "#\n"
        text += more
        i += 1


def make(folder: Path, files: int, concerned: int, lines: int) -> None:
    plain, old = source(lines - 1, concerned=False), source(lines - 1, concerned=True)
    every = max(1, files // concerned) if concerned else files + 1
    left = concerned
    for i in range(files):
        path = folder / f"package{i // 50}" / f"module{i}.py"
        path.parent.mkdir(exist_ok=True)
        is_old = left > 0 and i % every == 0
        left -= is_old
        path.write_text(f"# {i}\n{old if is_old else plain}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=1000)
    parser.add_argument("--concerned", type=int, default=30, metavar="N")
    parser.add_argument("--lines", type=int, default=300, metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, options.files, options.concerned, options.lines)
        command = [sys.executable, "-m", "keras_mp.migration", "migrate", "--check"]
        for jobs in sorted({1, options.jobs}):
            start = time.perf_counter()
            done = subprocess.run(
                [*command, "--jobs", str(jobs), folder], capture_output=True, text=True, check=False
            )
            seconds = time.perf_counter() - start
            assert done.returncode == (1 if options.concerned else 0), done.stderr
            print(f"keras-mp migrate --check --jobs {jobs}: {seconds:.2f} s")
        steps(folder)
    return 0


def steps(folder: Path) -> None:
    """Prints how long each step takes in one process."""
    import libcst

    from keras_mp.migration.code.rewriting import may_concern, rewrite
    from keras_mp.migration.code.tree import find

    def timed(what: str, run):
        start = time.perf_counter()
        result = run()
        print(f"  {what:40}{time.perf_counter() - start:8.3f} s")
        return result

    files = timed("finding files", lambda: find(folder).files)
    data = timed(f"reading {len(files)}", lambda: [file.read_bytes() for file in files])
    old = timed("filtering them", lambda: [one.decode() for one in data if may_concern(one)])
    timed(f"parsing {len(old)} (part of the next)", lambda: list(map(libcst.parse_module, old)))
    timed(f"rewriting {len(old)}", lambda: list(map(rewrite, old)))


if __name__ == "__main__":
    raise SystemExit(main())
