"""The weights' cache on disk, with a model file of a few kilobytes."""
import gguf
import numpy as np
import pytest
import weights

TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>", "\n", "\u2581", "a", "b", "ab", "\u2581ab", "<0x63>"]
KINDS = [3, 3, 3, 3, 4, 1, 1, 1, 1, 1, 6]
SCORES = [-1000.0] * 5 + [-9.0, -8.0, -7.0, -1.0, -2.0, 0.0]


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_block_count(1)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores(SCORES)
    writer.add_token_types(KINDS)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    for number, (name, shape) in enumerate({
            "token_embd": (11, 32), "blk.0.attn_k": (2, 32), "blk.0.attn_q": (4, 32), "blk.0.attn_v": (2, 32),
            "blk.0.ffn_up": (3, 32), "blk.0.ffn_gate": (3, 32)}.items()):
        writer.add_tensor(f"{name}.weight", np.full(shape, number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def check(files):
    assert files.metadata["gemma3.block_count"] == 1 and files.eos_id == 1
    assert files.tensors["token_embd.weight"].shape == (11, 32)
    # q, k, v and gate, up are in the order in which model.py splits them, for any order in the file
    assert files.tensors["blk.0.attn_qkv.weight"][:, 0].tolist() == [2] * 4 + [1] * 2 + [3] * 2
    assert files.tensors["blk.0.ffn_gate_up.weight"][:, 0].tolist() == [5] * 3 + [4] * 3


def test_second_start_reads_no_model_file(model_file, tmp_path, monkeypatch):
    check(weights.load(model_file, tmp_path / "cache"))
    monkeypatch.setattr(weights, "_convert", None)
    check(weights.load(model_file, tmp_path / "cache"))
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("name", ["weights.npy", "index.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_damaged_cache_is_rebuilt(model_file, tmp_path, name, damage):
    weights.load(model_file, tmp_path / "cache")
    place, = (tmp_path / "cache").iterdir()
    damage(place / name)
    check(weights.load(model_file, tmp_path / "cache"))


def test_failure_leaves_nothing(model_file, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(weights, "_reserve", full)
    with pytest.raises(weights.ExampleError, match="No space left on device"):
        weights.load(model_file, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_tokenizer(model_file, tmp_path):
    text = weights.load(model_file, tmp_path / "cache").tokenizer
    assert text.encode("ab ab\n") == [2, 8, 9, 4]
    assert text.encode("c") == [2, 10]                      # byte fallback
    assert 1 not in text.encode("<eos>")                    # text never becomes a control token
    assert text.decode([2, 8, 9, 4, 10, 1]) == "ab ab\nc"
