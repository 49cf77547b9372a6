"""Messages of `compat`, which name arguments of Python, with the options of the command instead.

By their text: a message is an error, a note or a change, and passes many hands before anybody
shows it, so that placeholders would have to be filled in wherever a program reads one. A test finds
all messages that name an argument, and fails where one is not translated.
"""

import re

# What is said to a program, and what to the reader of the command's output.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"kind='layer', or --as layer", "--as layer"),
    (r"exact_training=True keeps", "--exact-training keeps"),
    (
        r"pass custom_objects=\{+.*?: \.\.\.\}+, or register it before",
        "name the script that defines it, --model script.py",
    ),
    (
        r"pass it as custom_objects; differences='tell' loads the model anyway",
        "name the script that defines it, --model script.py; --accept-differences writes the model "
        "anyway",
    ),
    (r"from_graph=True runs", "--from-graph runs"),
    (r"from_graph= takes", "--function takes"),
    (r"from_graph= is", "--from-graph is"),
    (r"compile=False loads the model without", "--model-only writes the model without"),
    (
        r"load it with compile=False, compile the model, and say which to "
        r"keras_mp\.compat\.restore\(\.\.\., optimizer_path=\)",
        "--model-only writes the model without them",
    ),
    (r"pass tf_version='2\.2'", "pass --from 2.2"),
    (r" \(with strict=False, what fits would be\)", ""),
    (r"model_path= and optimizer_path= are", "--model-path and --optimizer-path are"),
    (r"--scratch-size, or scratch_size=", "--scratch-size"),
)
_PATTERNS = tuple((re.compile(pattern, re.DOTALL), words) for pattern, words in _WORDS)


def in_command_words(text: str) -> str:
    """Returns a message as the command says it.

    >>> in_command_words("BatchNormalization: exact_training=True keeps the layer of tf.keras")
    'BatchNormalization: --exact-training keeps the layer of tf.keras'
    """
    for pattern, words in _PATTERNS:
        text = pattern.sub(words, text)
    return text
