"""Tiny tasks of keras-hub, with vocabularies of their own: nothing is downloaded."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest

hub = pytest.importorskip("keras_hub", reason="keras-hub is not installed: `make clients` does")
models = hub.models

WORDS = ["the", "cat", "dog", "sat", "ran", "a", "good", "bad"]
TEXTS = ["the cat sat", "a dog ran", "good cat", "bad dog"] * 2
LABELS = np.array([0, 1, 0, 1] * 2)
LENGTH = 8
SMALL = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
BATCH = 2


@dataclass
class Example:
    """A task, and 8 rows as `fit` takes them: 4 batches of BATCH."""

    task: Any
    x: Any
    y: Any = None

    @property
    def raw(self) -> tuple[Any, ...]:
        """(x,) or (x, y), with strings where there is a preprocessor."""
        return (self.x,) if self.y is None else (self.x, self.y)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """(x, y) or (x, y, sample_weight) after the preprocessor, as NumPy arrays."""
        x = keras.tree.map_structure(lambda a: a.tolist() if a.dtype.kind == "U" else a, self.x)
        parts = keras.utils.unpack_x_y_sample_weight(self.task.preprocess_samples(x, self.y))
        return tuple(
            keras.tree.map_structure(np.asarray, part) for part in parts if part is not None
        )


def word_pieces() -> Any:
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    return models.BertTokenizer(vocabulary=special + WORDS, lowercase=True)


def byte_pairs() -> Any:
    """Each letter is a token, and two words are."""
    merges = ["t h", "th e", "c a", "ca t"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = ["<|endoftext|>", *letters, "Ġ", *(pair.replace(" ", "") for pair in merges)]
    return models.GPT2Tokenizer(
        vocabulary={token: number for number, token in enumerate(tokens)}, merges=merges
    )


def sentence_pieces() -> Any:
    import sentencepiece

    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=proto,
        vocab_size=3 + len(WORDS),
        model_type="WORD",
        bos_id=-1,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        minloglevel=2,
    )
    return models.T5Tokenizer(proto=proto.getvalue())


def bert_backbone() -> Any:
    return models.BertBackbone(vocabulary_size=5 + len(WORDS), max_sequence_length=LENGTH, **SMALL)


def bert() -> Example:
    preprocessor = models.BertTextClassifierPreprocessor(word_pieces(), sequence_length=LENGTH)
    task = models.BertTextClassifier(bert_backbone(), num_classes=2, preprocessor=preprocessor)
    return Example(task, np.array(TEXTS), LABELS)


def bert_masked() -> Example:
    preprocessor = models.BertMaskedLMPreprocessor(
        word_pieces(), sequence_length=LENGTH, mask_selection_length=2, mask_selection_rate=0.5
    )
    return Example(models.BertMaskedLM(bert_backbone(), preprocessor=preprocessor), np.array(TEXTS))


def gpt2(**options: Any) -> Example:
    tokenizer = byte_pairs()
    backbone = models.GPT2Backbone(
        vocabulary_size=tokenizer.vocabulary_size(), max_sequence_length=LENGTH, **SMALL, **options
    )
    preprocessor = models.GPT2CausalLMPreprocessor(tokenizer, sequence_length=LENGTH)
    return Example(models.GPT2CausalLM(backbone, preprocessor=preprocessor), np.array(TEXTS))


def t5() -> Example:
    tokenizer = sentence_pieces()
    backbone = models.T5Backbone(vocabulary_size=tokenizer.vocabulary_size(), **SMALL)
    preprocessor = models.T5Seq2SeqLMPreprocessor(
        tokenizer, encoder_sequence_length=LENGTH, decoder_sequence_length=LENGTH
    )
    texts = {"encoder_text": np.array(TEXTS), "decoder_text": np.array(TEXTS)}
    return Example(models.T5Seq2SeqLM(backbone, preprocessor=preprocessor), texts)


def images() -> np.ndarray:
    return np.random.RandomState(0).rand(len(LABELS), 16, 16, 3).astype("float32")


def resnet() -> Example:
    backbone = models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64],
        stackwise_num_blocks=[1],
        stackwise_num_strides=[1],
        block_type="basic_block",
        image_shape=(16, 16, 3),
    )
    return Example(models.ResNetImageClassifier(backbone, num_classes=2), images(), LABELS)


def vit() -> Example:
    backbone = models.ViTBackbone(
        image_shape=(16, 16, 3), patch_size=8, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=32
    )
    return Example(models.ViTImageClassifier(backbone, num_classes=2), images(), LABELS)


TASKS: dict[str, Callable[[], Example]] = {
    "bert": bert,
    "bert_masked": bert_masked,
    "gpt2": gpt2,
    "resnet": resnet,
    "vit": vit,
    "t5": t5,
}


def trained(
    make: Callable[[], Example], optimizer: Any, *, raw: bool = False, **fit: Any
) -> Example:
    """Returns the example after 4 steps, from the same start each time.

    `raw` has `fit` preprocess strings, whose pipeline takes far longer to trace than to train.
    """
    keras.utils.set_random_seed(1)
    example = make()
    example.task.compile(
        optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    train(example.task, example.raw if raw else example.arrays, raw=raw, **fit)
    return example


def train(task: Any, data: tuple[Any, ...], *, raw: bool = False, **fit: Any) -> None:
    """Trains for 4 steps; of arrays nothing is left to preprocess."""
    kept = task.preprocessor
    if not raw:
        task.preprocessor = None
    # PyTorch draws dropout from the generator of the process, and has drawn some where a step is
    # looked at before the first.
    seed = keras.callbacks.LambdaCallback(on_train_begin=lambda _: keras.utils.set_random_seed(2))
    callbacks = [*fit.pop("callbacks", ()), seed]
    x, y, weight = (*data, None, None)[:3]
    task.fit(
        x,
        y,
        sample_weight=weight,
        batch_size=BATCH,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
        **fit,
    )
    task.preprocessor = kept
