"""The Python programs of the READMEs run as they stand there."""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def printed(readme, capsys):
    program = readme.read_text().split("```python\n")[1].split("```")[0]
    exec(compile(program, str(readme), "exec"), {})
    return capsys.readouterr().out


def test_quick_start(capsys):
    assert printed(ROOT / "README.md", capsys) == "(100, 4, 64) 15\n"


def test_quick_start_of_the_package(capsys):
    assert printed(ROOT / "bindings/python/README.md", capsys) == "preempt row 4: 47 pages are missing\n"
