"""The Python programs of the README run as they stand there."""
import pathlib

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_quick_start(capsys):
    program = README.read_text().split("```python\n")[1].split("```")[0]
    exec(compile(program, str(README), "exec"), {})
    assert capsys.readouterr().out == "(100, 4, 64) 15\n"
