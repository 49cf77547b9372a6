from nets.layers import GatedDense, ScaleNorm
from nets.sequence_model import SequenceModel
