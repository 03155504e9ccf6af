"""Every script says what it is for, and works in a fresh clone: it sets up what it needs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The set-up itself and its caller, what other scripts include, what runs on a machine with a GPU, and what names the toolchain to install.
WITHOUT = {"setup.sh", "test.sh", "common.sh", "gpu_check.sh", "miri.sh"}
# What each level of scripts/setup.sh provides.
DEMO = ["cmake", "ninja"]
LANGUAGES = [*DEMO, "cargo", "go", "java", "javac", "jar", "mvn", "swig"]
WINDOWS = [*DEMO, "x86_64-w64-mingw32-g++-posix", "wine"]
PACKAGING = [*DEMO, "dpkg-buildpackage", "dh", "lintian", "ruby"]
TOOLS = {"demo": DEMO, "languages": LANGUAGES, "test": DEMO, "windows": WINDOWS, "packaging": PACKAGING,
         "full": [*LANGUAGES, "auditwheel", "clang++-19", "clang-tidy-19"]}
# Scripts with a level that `full` does not include, and what it installs.
OWN_SET_UP = {"scripts/windows.sh": "Wine and mingw-w64", "scripts/try_recipes.sh": "debhelper and lintian"}
REAL = os.environ.get("KVC_FRESH_SET_UP") == "real"


ALL = sorted({f"scripts/{path.name}" for path in (ROOT / "scripts").glob("*.sh")} | {"examples/guide/java/run.sh"})
SCRIPTS = [script for script in ALL if Path(script).name not in WITHOUT]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone with the sources that a set-up reads. In the quick tests a substitute for scripts/setup.sh links the existing
    environment, and makes empty programs for the tools of its level, so that they need not be installed."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for module in ("bindings/go", "examples/gemma/go"):
        (folder / module).mkdir(parents=True)
        for name in ("go.mod", "go.sum"):
            shutil.copy(ROOT / module / name, folder / module)
    for script in SCRIPTS:
        if not script.startswith("scripts/"):
            (folder / script).parent.mkdir(parents=True)
            shutil.copy(ROOT / script, folder / script)
    if not REAL:
        lines = [f'ln -sfn "{sys.prefix}" .venv', "rm -rf installed", "mkdir installed", "case $1 in"]
        lines += [f"  {level}) tools='{' '.join(tools)}' ;;" for level, tools in TOOLS.items()]
        lines += ["  *) exit 2 ;;", "esac", "for tool in $tools; do", "  cp /bin/true installed/$tool", "done", ""]
        (folder / "scripts/setup.sh").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize("script", [script for script in ALL if script != "scripts/common.sh"])
def test_a_script_says_what_it_is_for(tmp_path, script):
    """--help prints the comment at its head, and nothing is installed or run: no tool is in the path."""
    result = subprocess.run(["bash", ROOT / script, "--help"], env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
                            text=True, capture_output=True, timeout=20, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    lines = (ROOT / script).read_text().splitlines()[1:]
    comment = [line[2:] for line in lines[:next(i for i, line in enumerate(lines) if not line.startswith("#"))]]
    assert len(comment) > 0 and result.stdout.splitlines() == comment


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_sets_up_what_it_needs(clone, script):
    if REAL and script in OWN_SET_UP:
        pytest.skip(f"it would install {OWN_SET_UP[script]}, which only one part of scripts/test.sh does")
    set_up_only(clone, script)


@pytest.mark.skipif(REAL, reason="it would install what only one part of scripts/test.sh installs")
@pytest.mark.parametrize(("script", "tool"), [("scripts/windows.sh", "wine"), ("scripts/try_recipes.sh", "lintian")])
def test_a_full_set_up_lacks_what_few_scripts_need(clone, script, tool):
    """A part of scripts/test.sh --full gets KVC_SET_UP=full. For these tools, the script must still set up."""
    set_up_only(clone, script, KVC_SET_UP="full")
    assert (clone / "installed" / tool).exists()


def set_up_only(clone, script, **variables):
    if not REAL:
        (clone / ".venv").unlink(missing_ok=True)
        shutil.rmtree(clone / "installed", ignore_errors=True)
    names = ("KVC_SET_UP", "DLPACK_INCLUDE_DIR", "KVCACHE_RELEASE_BUILD", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"KVC_SET_UP_ONLY": "1", **variables}
    if not REAL:
        environment["HOME"] = str(clone)  # hides the user's own tools, such as cargo
        environment["PATH"] = f"{clone / 'installed'}:/usr/bin:/bin"  # hides all other tools
    result = subprocess.run(["bash", clone / script], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False)
    assert result.returncode == 0, result.stdout
    found = re.search(rf"{Path(script).name}: set up, with DLPack in (.+)", result.stdout)
    assert found and (Path(found[1]) / "dlpack/dlpack.h").exists(), result.stdout
    assert (clone / ".venv/bin/python").exists()
