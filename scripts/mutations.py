"""Off-by-ones in kernels/common/visible.h: which tests notice them. mutations.sh runs this.

A place is a piece of visible.h with one @ or more. In the copy of the header, each @ adds 0, or +1 or -1 if the place is
selected. KVC_MUTATION=NUMBER:ADDED:PATH selects one, in the source files whose path contains PATH. So a test
that fails does so because of one user, and not because another part of the library follows the same rule.
"""
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "kernels/common/visible.h"
LEAST_SECONDS, TIMES_LONGER = 60, 20  # limits of a run, whose loops may never end: absolute, and relative to the plain run

# Name: part of the path of the source files that are mutated, test program, its tests, whether the emulated GPU runs them.
USERS = {
    "mask.h": ("tests/kernels/visible_test.cc", "kernels/kernels_test", "Visible.P*:Visible.S*:Visible.T*", False),
    "CPU": ("kernels/cpu/", "kernels/kernels_test", "Mask.*:Option.*", False),
    "reference": ("kernels/reference/", "kernels/kernels_test", "Mask.*:Option.*", False),
    "CUDA": ("kernels/cuda/attend/", "kernels/kernels_test", "Mask.*:Option.*", True),
    "work plan": ("src/plan/work_plan.cc", "plan/plan_test", "WorkPlan.*", False),
    "batch plan": ("src/plan/batch_plan.cc", "plan/plan_test", "BatchPlan.*", False),
    "tables": ("tables", "tables/tables_test", "*", False),
    "CUDA tables": ("kernels/cuda/plan/", "cuda/cuda_calls_test", "*Plans*", True),
    "group rules": ("", "sequence/sequence_test", "GroupRules.*", False),
}
KERNELS = ["mask.h", "CPU", "reference", "CUDA"]
TABLES = ["tables", "CUDA tables"]
WINDOWS = [*KERNELS, "work plan", *TABLES, "group rules"]
CHUNKS = [*KERNELS, "work plan", *TABLES, "group rules"]

# Name, text of visible.h with its places, what is added, who uses it. A number in brackets after a user is what is added for
# this user: the other direction changes nothing that it computes.
BOTH = (-1, 1)
PLACES = [
    ("a stream's window", "{stream_window - sinks@, 0, sinks, sinks}", BOTH,
     [*KERNELS, "work plan", "batch plan", "group rules"]),
    ("nothing hidden", "return rule.window <= 0@ && rule.chunk <= 0@;", (1,), [*TABLES, "group rules"]),
    ("causal end", "return p + 1@;", BOTH, [*KERNELS, "work plan", *TABLES]),
    ("chunk: begin", "const int32_t rest = (p - rule.first@) % rule.chunk;", BOTH, CHUNKS),
    ("first position", "int32_t begin = rule.first@;", BOTH, [*WINDOWS, "batch plan(1)"]),
    ("window: from where", "if (rule.window > 0 && p - rule.first@ >= rule.window)", (-1,), [*WINDOWS, "batch plan"]),
    ("window: of one", "if (rule.window@ > 0 && p - rule.first", (-1,), [*WINDOWS, "batch plan"]),
    ("window: begin", "begin = p - rule.window + 1@;", BOTH, [*WINDOWS, "batch plan(-1)"]),
    ("chunk: of one", "if (rule.chunk <= 0@) return begin;", (1,), CHUNKS),
    ("chunk: end", "const int32_t of_chunk = chunk_begin(rule, p) + rule.chunk@;", BOTH, [*KERNELS, *TABLES]),
    ("sinks", "return rule.sinks@ < end ? rule.sinks@ : end;", BOTH,
     [*KERNELS, "work plan", "tables", "CUDA tables(1)", "group rules"]),
    ("position for sinks", "return p < stream_window@ ? p : stream_window@ - 1;", BOTH, [*KERNELS, "batch plan"]),
    ("window: first query beyond", "first = int64_t{begin} + rule.window - 1@;", BOTH, ["group rules"]),
    ("chunk: first query beyond", "const int64_t of_chunk = int64_t{chunk_begin(rule, begin - 1)} + rule.chunk@;", BOTH,
     ["group rules"]),
    ("most before", "? rule.window : rule.chunk) - 1@;", (1,), ["group rules"]),
    ("tree: begin", "tree.begin = rows->tree_begin[row]@;", BOTH, KERNELS),
    ("tree: position of a key", "return key < tree->begin ? key : tree->nodes[key - tree->begin].position@;", BOTH, KERNELS),
    ("tree: indexes", "if (positions.end > tree.begin) positions.end = causal_end(own_index)@;", (-1,), KERNELS),
    ("tree: descendants begin", "return node->enter@ <= mask->enter", BOTH, KERNELS),
    ("tree: descendants end", "mask->enter < node->exit@ &&", BOTH, KERNELS),
    ("tree: positions begin", "node->position >= mask->positions.begin@ &&", BOTH, KERNELS),
    ("tree: positions end", "node->position < mask->positions.end@;", BOTH, KERNELS),
    ("key: begin", "if (key < mask->keys.begin@ || key", BOTH, ["mask.h", "reference(1)", "CUDA"]),
    ("key: end", "|| key >= mask->keys.end@) return false;", BOTH, ["mask.h", "reference(-1)", "CUDA"]),
    ("bits: begin", "(1u << (keys.begin - begin@));", (1,), ["mask.h", "CPU"]),
    ("bits: end", "uint32_t bits = (1u << (keys.end - begin@))", (-1,), ["mask.h", "CPU"]),
]

# What the copy of the header begins with.
SELECTED = """
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kvc::kernels {
struct Selected {
  int place = -1, added = 0;
  Selected() {
    char path[100] = "";
    const char* text = std::getenv("KVC_MUTATION");
    if (text == nullptr || std::sscanf(text, "%d:%d:%99s", &place, &added, path) < 2) return;
    if (std::strstr(__BASE_FILE__, path) == nullptr) place = -1;
  }
};
static const Selected selected;
static inline int added(int place) { return place == selected.place ? selected.added : 0; }
}  // namespace kvc::kernels

"""


def mutated(text: str) -> str:
    """The header with all places in it."""
    begin = text.index("namespace kvc::kernels {")
    for number, (name, place, _, _) in enumerate(PLACES):
        plain = place.replace("@", "")
        if text.count(plain) != 1:
            sys.exit(f"mutations.py: {name}: {HEADER} must have this once, and has it {text.count(plain)} times: {plain}")
        text = text.replace(plain, place.replace("@", f" + added({number})"))
    return text[:begin] + SELECTED + text[begin:]


def copy_sources(to: Path) -> None:
    """Files that did not change keep their time, so that a second build compiles little."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True)
    names = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        data = (ROOT / name).read_bytes()
        if name == HEADER:
            data = mutated(data.decode()).encode()
        if not (to / name).is_file() or (to / name).read_bytes() != data:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes(data)
    for path in to.rglob("*"):
        if path.is_file() and path.relative_to(to).as_posix() not in names:
            path.unlink()


def build(tree: Path, out: Path, dlpack: str) -> None:
    programs = {program for _, program, _, _ in USERS.values()}
    folders = sorted({program.split("/")[0] for program in programs})
    subprocess.run(["cmake", "-S", tree, "-B", out, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DKVCACHE_BUILD_TESTS=ON",
                    "-DKVCACHE_SCALAR_ONLY=ON", f"-DKVCACHE_TEST_FOLDERS={';'.join(folders)}",
                    f"-DDLPACK_INCLUDE_DIR={dlpack}",
                    f"-DPython3_EXECUTABLE={sys.executable}"], check=True, stdout=subprocess.DEVNULL)
    targets = [*sorted(program.split("/")[1] for program in programs), "kvcache_cuda_emulated_plugin"]
    subprocess.run(["cmake", "--build", out, "--parallel", str(os.cpu_count()), "--target", *targets], check=True)


def is_listed(user: str, added: int, users: list) -> bool:
    return user in users or f"{user}({added})" in users


def is_red(out: Path, user: str, selection: str, limit: float | None) -> bool:
    path, program, tests, on_gpu = USERS[user]
    environment = dict(os.environ, KVC_MUTATION=f"{selection}:{path}")
    if on_gpu:
        plugin = out / "tests/cuda/libkvcache_cuda_emulated_plugin.so"
        environment |= {"KVC_KERNEL_BACKEND": "cuda", "KVC_TEST_DEVICE": "cuda", "KVCACHE_CUDA_BACKEND": str(plugin)}
    command = [out / "tests" / program, f"--gtest_filter={tests}", "--gtest_fail_fast", "--gtest_brief=1"]
    try:
        return subprocess.run(command, env=environment, timeout=limit, capture_output=True).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def limit_of(out: Path, user: str) -> float:
    begin = time.monotonic()
    if is_red(out, user, "-1:0", None):
        sys.exit(f"mutations.py: tests of {user} fail without a mutation")
    return max(LEAST_SECONDS, TIMES_LONGER * (time.monotonic() - begin))


def main(folder: str, dlpack: str, *words: str) -> None:
    tree, out, everyone = Path(folder, "tree"), Path(folder, "build"), "--all" in words
    words = [word for word in words if word != "--all"]
    copy_sources(tree)
    build(tree, out, dlpack)
    runs = [(name, f"{number}:{added}", user, is_listed(user, added, users))
            for number, (name, _, directions, users) in enumerate(PLACES) for added in directions for user in USERS
            if (everyone or is_listed(user, added, users)) and (not words or any(word in name for word in words))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        limits = dict(zip(USERS, pool.map(lambda user: limit_of(out, user), USERS)))
        reds = list(pool.map(lambda run: is_red(out, run[2], run[1], limits[run[2]]), runs))
    green = 0
    for (name, selection, user, listed), red in zip(runs, reds):
        print(f"{'red  ' if red else 'GREEN' if listed else 'green'}  {name} {int(selection.split(':')[1]):+d}: {user}"
              f"{'' if listed else ' (does not use it)'}")
        green += listed and not red
    expected = sum(listed for _, _, _, listed in runs)
    print(f"{expected - green} of {expected} red")
    sys.exit(1 if green else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
