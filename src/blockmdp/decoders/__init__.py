"""Decoders, which map an observation and its level to a label."""

from blockmdp.decoders.base import Decoder
from blockmdp.decoders.fitted import FittedDecoder, constant_decoder, decode_mixture
from blockmdp.decoders.table import FrozenTable, TableDecoder

__all__ = [
    "Decoder",
    "FittedDecoder",
    "FrozenTable",
    "TableDecoder",
    "constant_decoder",
    "decode_mixture",
]
