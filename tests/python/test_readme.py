"""The Python programs of the READMEs and the guide run unchanged, and the lines of C in the guide compile."""
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

import kvcache

ROOT = pathlib.Path(__file__).resolve().parents[2]


def printed(readme, capsys):
    program = readme.read_text().split("```python\n")[1].split("```")[0]
    exec(compile(program, str(readme), "exec"), {})
    return capsys.readouterr().out


def test_quick_start(capsys):
    assert printed(ROOT / "README.md", capsys) == "(100, 4, 64) 15\n"


def test_quick_start_of_the_package(capsys):
    assert printed(ROOT / "bindings/python/README.md", capsys) == "preempt row 4: 47 pages are missing\n"


def blocks(language, page="features.md"):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs/guide" / page).read_text(), re.DOTALL)


def test_every_kind_of_cache_and_attention():
    names = {}
    for program in blocks("python"):
        exec(compile(program, "docs/guide/features.md", "exec"), names)
    assert names["prefix_groups"] == 1 and names["nearest"] == (16, 91)
    assert names["chat"].length(names["users"][0]) == 100 + 1 + 4
    assert names["hybrid"].length(names["hybrid"].add()) == 0 and names["mla"].shape == (5, 4, 10)
    for name in ("heard", "mla", "full", "out", "lse", "longer", "rotated"):
        assert np.isfinite(names[name]).all(), name
    assert all(np.isfinite(out).all() for out in names["outs"])


@pytest.mark.parametrize(("page", "least"), [("tutorial.md", 6), ("prefix.md", 2)])
def test_programs_print_what_their_comments_say(page, least, capsys):
    """Each program of a page continues where the one before it ended."""
    names, checked = {}, 0
    for program in blocks("python", page):
        exec(compile(program, f"docs/guide/{page}", "exec"), names)
        expected = re.findall(r"print\(.*\)\s+# (.*)", program)
        assert capsys.readouterr().out.splitlines() == expected
        checked += len(expected)
    assert checked >= least


# Declarations for the lines of C.
DECLARATIONS = """
#include <kvcache.h>
static kvc_context *context; static kvc_cache *cache; static kvc_error error; static kvc_cache_config config;
static kvc_layer_config layers[6]; static kvc_group_config groups[2]; static kvc_batch batch; static kvc_attend_args args;
static kvc_merge_args merge; static kvc_forward step; static kvc_seq seq, parents[2], children[2];
static kvc_state_config state; static kvc_rope_scaling scaling; static int64_t before, after; static int32_t num_frames;
static float k_scales[1], v_scales[1];
static const int32_t *prompt; static int64_t n; static uint64_t tenant; static void *stream;
static DLTensor q, out, lse, latent_and_rope, w_uk, w_uv, states, slopes, sink_logits, blocks, cos_sin;
"""


def test_the_lines_of_c_compile(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    bodies = "\n".join(f"void block_{i}(void);\nvoid block_{i}(void) {{\n{body}}}" for i, body in enumerate([*blocks("c"), *blocks("c", "prefix.md")]))
    assert bodies.count("block_") > 15
    source = tmp_path / "lines.c"
    source.write_text(DECLARATIONS + bodies)
    subprocess.run([compiler, "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused",
                    f"-I{kvcache.get_include()}", source], check=True)
