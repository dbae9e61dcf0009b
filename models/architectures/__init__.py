"""The generated models, one module each, as users of exporters would meet them."""

from models.architectures.depthwise_cnn import DEPTHWISE_CNN
from models.architectures.dynamic_int8 import DYNAMIC_INT8
from models.architectures.gqa_decoder_step import GQA_DECODER_STEP
from models.architectures.if_loop import IF_LOOP
from models.architectures.lstm_gru import LSTM_GRU
from models.architectures.residual_cnn import RESIDUAL_CNN
from models.architectures.sketch import Architecture, Array
from models.architectures.transformer_layer import TRANSFORMER_LAYER
from models.architectures.unet_block import UNET_BLOCK

__all__ = ["ARCHITECTURES", "Architecture", "Array"]

ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        RESIDUAL_CNN,
        DEPTHWISE_CNN,
        TRANSFORMER_LAYER,
        GQA_DECODER_STEP,
        UNET_BLOCK,
        LSTM_GRU,
        DYNAMIC_INT8,
        IF_LOOP,
    )
}
