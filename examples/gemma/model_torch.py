"""The forward pass of model.py in PyTorch, on the CPU or a GPU: the same blocks in float32."""
import torch

from errors import ExampleError
from model import ARCHITECTURE, Block, Config


class TorchModel:
    """Weights on one device and the forward pass. T = tokens of a step, all rows of the batch one after the other."""

    def __init__(self, config: Config, tensors: dict, device: str):
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ExampleError(f"--device {device}: PyTorch sees no CUDA device")
        torch.set_float32_matmul_precision("highest")  # no TF32: tokens are to be those of the CPU
        self.config, self.device = config, device
        weights = {name: torch.tensor(tensor, device=device) for name, tensor in tensors.items()}
        try:
            self._embedding = weights["token_embd.weight"]  # [vocabulary, embedding], also the output matrix
            self._output_norm = weights["output_norm.weight"]
            self._blocks = [TorchBlock(config, weights, i) for i in range(config.layers)]
        except KeyError as error:
            raise ExampleError(f"the model file lacks tensor {error.args[0]}") from error
        self._scale = float(ARCHITECTURE["embedding_scale"](config.embedding))

    @property
    def vocabulary(self) -> int:
        return self._embedding.shape[0]

    @torch.inference_mode()
    def hidden(self, tokens, attend):
        """tokens int[T] -> float32[T, embedding]; attend(layer, q, k, v) -> [T, q_heads, head_dim]."""
        x = self._embedding[torch.as_tensor(tokens, device=self.device)] * self._scale
        for layer, block in enumerate(self._blocks):
            x = block.forward(x, lambda q, k, v: attend(layer, q, k, v))
        return x

    @torch.inference_mode()
    def logits(self, hidden):
        """float32[n, embedding] -> float32[n, vocabulary], a numpy array"""
        normed = rms_norm(hidden, self._output_norm, self.config.norm_epsilon)
        return (normed @ self._embedding.T).cpu().numpy()


def rms_norm(x, weight, epsilon):
    """Over the last axis, in float32."""
    mean_square = x.square().mean(dim=-1, keepdim=True)
    return x / (mean_square + epsilon).sqrt() * (weight + ARCHITECTURE["norm_weight_offset"])


def gelu_tanh(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


class TorchBlock(Block):
    rms_norm = staticmethod(rms_norm)
    gelu_tanh = staticmethod(gelu_tanh)
    contiguous = staticmethod(torch.Tensor.contiguous)
