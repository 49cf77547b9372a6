"""Models whose layers call torch themselves, or wrap its modules: a module for each, and data."""

import keras
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 3


class Block(nn.Module):
    """A residual block, as torchvision has it."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8), Block(8))
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.stem(x.permute(0, 3, 1, 2)))), 2)
        return self.fc(torch.flatten(self.pool(self.layer1(x)), 1))


class Transformer(nn.Module):
    """Rows of the image as tokens, two encoder layers of torch, a mean over the tokens."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.fc(self.encoder(self.embed(x.squeeze(-1))).mean(1))


class Attention(nn.Module):
    """Attention by einsum, with a mask of a constant."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 48)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x):
        q, k, v = torch.chunk(self.qkv(torch.squeeze(x, -1)), 3, -1)
        logits = torch.einsum("bqd,bkd->bqk", q, k)
        p = torch.softmax(logits, -1)
        return self.fc(torch.mean(torch.relu(torch.einsum("bqk,bkd->bqd", p, v)), 1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 8, 3, padding=1)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.last = nn.Conv2d(16, CLASSES, 1)

    def forward(self, x):
        first = F.relu(self.down(torch.permute(x, (0, 3, 1, 2))))
        inner = F.silu(self.middle(F.avg_pool2d(first, 2)))
        joined = torch.cat([first, F.gelu(self.up(inner))], 1)
        return torch.mean(self.last(joined), (2, 3))


class OwnNorm(nn.Module):
    """A batch normalization written out."""

    def __init__(self):
        super().__init__()
        self.first, self.fc = nn.Linear(64, 16), nn.Linear(16, CLASSES)
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x):
        x = self.first(torch.flatten(x, 1))
        mean = torch.mean(x, 0)
        var = torch.var(x, 0)
        x = torch.multiply(torch.subtract(x, mean), torch.rsqrt(var + 1e-3))
        return self.fc(torch.tanh(torch.multiply(x, self.scale)))


class RMS(nn.Module):
    """A gated perceptron with a normalization that its author computes in float32."""

    def __init__(self):
        super().__init__()
        self.first, self.gate = nn.Linear(64, 16), nn.Linear(64, 16)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = torch.flatten(x, 1)
        y = torch.multiply(F.silu(self.gate(x)), self.first(x))
        wide = y.float()
        wide = torch.multiply(wide, torch.rsqrt(torch.mean(torch.square(wide), -1, True) + 1e-3))
        return self.fc(wide)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.fc = nn.Linear(12, CLASSES)

    def forward(self, x):
        return self.fc(torch.mean(self.lstm(torch.squeeze(x, -1))[0], 1))


class Squeeze(nn.Module):
    """A depthwise convolution with squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.norm = nn.GroupNorm(2, 8)
        self.excite = nn.Linear(8, 8)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = F.hardswish(self.depthwise(F.leaky_relu(self.stem(torch.movedim(x, 3, 1)))))
        gate = torch.sigmoid(self.excite(torch.amax(x, (2, 3))))
        x = self.norm(torch.multiply(x, torch.reshape(gate, (-1, 8, 1, 1))))
        return self.fc(torch.mean(x, (2, 3)))


MODULES = {
    "resnet": ResNet,
    "transformer": Transformer,
    "attention": Attention,
    "unet": UNet,
    "own normalization": OwnNorm,
    "rms": RMS,
    "lstm": Recurrent,
    "squeeze": Squeeze,
}


class Mixed(keras.layers.Layer):
    """Computes with torch on weights of Keras."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 16), name="w")
        self.b = self.add_weight(shape=(16,), name="b", initializer="zeros")

    def call(self, x):
        x = F.linear(x, torch.t(self.w.value), self.b.value)
        return F.layer_norm(F.gelu(x), (16,))


class Two(keras.layers.Layer):
    """Two products of matrices with an activation between them."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 16), name="w")
        self.v = self.add_weight(shape=(16, 8), name="v")

    def call(self, x):
        return torch.matmul(torch.relu(torch.mm(x, self.w.value)), self.v.value)


def mixed():
    return [
        keras.layers.Flatten(),
        keras.layers.Dense(16, activation="relu", name="first"),
        Mixed(name="mixed"),
        keras.layers.Dense(CLASSES, name="last"),
    ]


def two():
    return [keras.layers.Flatten(), Two(name="two"), keras.layers.Dense(CLASSES, name="last")]


LAYERS = {"mixed": mixed, "two": two}
NAMES = (*MODULES, *LAYERS)


def model(name):
    """Returns a model of images (8, 8, 1) with `CLASSES` logits."""
    keras.utils.set_random_seed(0)
    if name in LAYERS:
        layers = LAYERS[name]()
    else:
        wrapper = keras.layers.TorchModuleWrapper
        layers = [wrapper(MODULES[name](), output_shape=(None, CLASSES), name="net")]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers], name="model")
