"""What else stops a program of tf.keras under Keras 3: `keras-mp migrate --keras3`.

`checking` asks the rules, each a module, about a parsed program. What Keras 3 changed is in
`changes.json`, compared from recordings of TensorFlow 1.15, 2.4, 2.10 and 2.15, and of Keras 3;
what to write instead is in `advice`.
"""
