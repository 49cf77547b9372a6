"""Records where docs/tutorials/walkthrough-tf23.md starts, and where TensorFlow itself ended.

python3.8 -m pip install tensorflow-cpu==2.3.4 'protobuf<3.20'
TF_CPP_MIN_LOG_LEVEL=3 python3.8 record.py
"""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

tf.random.set_seed(0)
exec(Path("train.py").read_text())

losses, scales = [], []
for _ in range(3):
    done = model.fit(x, y, batch_size=32, shuffle=False, verbose=0)  # noqa: F821
    losses += done.history["loss"]
    scales.append(float(model.optimizer.loss_scale()))  # noqa: F821
recorded = {
    "tensorflow": tf.__version__,
    "losses": losses,
    "scales": scales,
    "iterations": int(model.optimizer.iterations),  # noqa: F821
    "weights": [np.asarray(w, "float64").ravel().tolist() for w in model.get_weights()],  # noqa: F821
}
Path("recorded.json").write_text(json.dumps(recorded))
print(recorded["losses"], scales, recorded["iterations"])
