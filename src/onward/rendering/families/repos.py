"""How copies of a model are called by those who publish them."""

from typing import Final

COPIES: Final = (
    r"([-_.](FP8|FP4|BF16|FP16|MXFP4|NVFP4|AWQ|GPTQ|GGUF|MLX|ONNX|INT[48]|W\d+A\d+|Q[2-8](_\w+)?|[2-8]-?bit"
    r"|bnb|quantized|Dynamic|Block|unsloth|KV|HF|MoE|imatrix))*"
)
"""What may follow a repo ID if only the weights are stored another way, case aside."""
