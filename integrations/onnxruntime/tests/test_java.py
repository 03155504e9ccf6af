"""The plug-in in ONNX Runtime for Java: the same binary, the same tokens."""
import java_host
import numpy as np
from models import Decoder, generate, session


def test_java_gives_the_tokens_of_python(tmp_path):
    decoder = Decoder()
    model = tmp_path / 'decoder.onnx'
    model.write_bytes(decoder.model)
    prompts = [np.random.default_rng(seed).integers(0, decoder.VOCABULARY, 30) for seed in (5, 6)]
    expected, margins = zip(*(generate(session(decoder.model, False), prompt, 40) for prompt in prompts))
    assert min(margins) > 1e-3 and expected[0] != expected[1]
    stock, plugin = java_host.tokens(model, [40, decoder.LAYERS, decoder.KV_HEADS, decoder.DIMS], prompts, tmp_path)
    assert stock == list(expected)
    assert plugin == list(expected)
