"""The OpenAI server of vLLM over HTTP: what it answers with the plug-in, and what it answers without."""
from pathlib import Path

import pytest
from server import SERVED, Answer, Server

# A smaller lead of stock's best token may be another token's with another rounding. bfloat16 logits of 16 to 32 are multiples
# of 0.125, so a lead is 0 or at least that. There stock itself answers otherwise when requests arrive in another order.
MARGIN = {"float32": 1e-3, "bfloat16": 0.1251}
NEW_TOKENS = 16
ARGUMENTS = ("--enforce-eager", "--max-model-len", "2048", "--max-num-batched-tokens", "256", "--enable-prefix-caching",
             "--enable-chunked-prefill", "--kv-cache-memory-bytes", str(1 << 30))

TOPICS = ("rivers", "clocks", "bread", "winter", "ships", "bees", "glass", "maps", "iron", "music")
SENTENCE = "A guide speaks about {topic} to visitor number {i}, who has come to the museum for the first time. "


def prompts() -> list[str]:
    """40 texts of 12 to about 1,000 tokens. Four at a time begin with the same text."""
    texts = []
    for i, topic in enumerate(TOPICS):
        shared = "".join(SENTENCE.format(topic=topic, i=n) for n in range(1 + i * i // 3))
        texts += [f"{shared}Visitor: {question} Guide:" for question in (
            f"What are {topic}?", f"Why are {topic} old?", f"Who made the first {topic}, and when?", "Where is the door?")]
    return texts


def until_first_difference(stock: Answer, ours: Answer) -> int:
    same = [a == b for a, b in zip(stock.tokens, ours.tokens, strict=True)]
    return same.index(False) if False in same else len(same)


def answers(model: Path, log: Path, plugin: bool, dtype: str) -> list[Answer]:
    with Server(model, log, plugin, *ARGUMENTS, "--dtype", dtype) as server:
        found = server.complete_all(prompts(), NEW_TOKENS, clients=8)
        assert server.metric("vllm:prefix_cache_hits_total") > 0
    assert (SERVED in log.read_text()) == plugin
    return found


@pytest.mark.parametrize("dtype", MARGIN)
def test_greedy_tokens_are_those_of_stock(gemma, tmp_path, dtype):
    stock = answers(gemma, tmp_path / "stock.log", False, dtype)
    ours = answers(gemma, tmp_path / "ours.log", True, dtype)
    assert len(stock) == len(ours) == 40
    wrong, compared = [], 0
    for number, (a, b) in enumerate(zip(stock, ours, strict=True)):
        at = until_first_difference(a, b)
        compared += at
        if at < NEW_TOKENS and a.margins[at] > MARGIN[dtype]:
            wrong.append(f"prompt {number}, token {at}: {a.tokens[at]!r} against {b.tokens[at]!r}, margin {a.margins[at]:.4f}")
    print(f"{dtype}: {compared} of {40 * NEW_TOKENS} tokens compared")
    assert not wrong, "\n".join(wrong)
    assert compared > 40 * NEW_TOKENS // 2
