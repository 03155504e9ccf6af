"""The table of architectures. A dozen of them run here, and `scripts/test.sh transformers-census` runs all."""

import pytest
import transformers

from architectures import names
from census import HEADER, PAGE, census, row

# One of each kind of layer, attention and refusal.
DOZEN = ["llama", "gemma4_text", "gpt_oss", "mimo_v2_flash", "deepseek_v3", "kimi_linear", "qwen3_next", "falcon_h1", "lfm2", "zaya",
         "gptj", "moshi", "deepseek_v32", "deepseek_v4", "qwen4_exp_text", "minimax", "rwkv", "gemma3"]


@pytest.mark.parametrize("name", DOZEN)
def test_row_of_the_table(name):
    finding = census(name)
    assert not finding.fault
    found = row(name, finding).split("|")
    listed = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |")).split("|")
    if finding.attention:  # on another CPU, the error may be rounded up to the next power of ten
        error, limit = float(found.pop(3)), float(listed.pop(3))
        assert error < 11 * limit and error <= 1e-4  # 10 * 1e-06 is less than 1e-05
    assert found == listed


def test_the_table_is_complete():
    page = PAGE.read_text()
    rows = [line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith("| `")]
    assert rows == names()
    assert f"(transformers {transformers.__version__})" in page and "fault" not in page
    assert page.startswith(HEADER.split("{version}")[0])
