"""The plug-in in ONNX Runtime for Java, another release of the host than the one from PyPI: the same binary, the same tokens."""
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from models import PLUGIN, Decoder, session

HERE = Path(__file__).parent
VERSION = '1.29.0'


@pytest.fixture(scope='module')
def jar() -> Path:
    folder = HERE.parents[2] / 'build' / 'onnxruntime' / 'java'
    found = folder / f'onnxruntime-{VERSION}.jar'
    if not found.exists():
        subprocess.run(['mvn', '-q', '-B', '-ntp', '-f', HERE / 'pom.xml', f'-Donnxruntime={VERSION}', f'-Dfolder={folder}',
                        'dependency:copy-dependencies'], check=True, stdout=subprocess.DEVNULL)
    return found


def test_java_gives_the_tokens_of_python(jar, tmp_path):
    decoder = Decoder()
    model = tmp_path / 'decoder.onnx'
    model.write_bytes(decoder.model)
    prompt = np.random.default_rng(5).integers(0, decoder.VOCABULARY, 30)
    expected, margin = decoder.generate(session(decoder.model, False), prompt, 40)
    assert margin > 1e-3
    sizes = [40, decoder.LAYERS, decoder.KV_HEADS, decoder.DIMS]
    command = ['java', '-cp', jar, HERE / 'Tokens.java', model, PLUGIN, *map(str, [*sizes, *prompt])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    version, stock, plugin, profile = done.stdout.splitlines()
    assert version == VERSION
    assert json.loads(stock) == expected
    assert json.loads(plugin) == expected
    events = json.loads((tmp_path / profile).read_text())
    providers = {event['args']['provider'] for event in events if event.get('args', {}).get('op_name') == 'GroupQueryAttention'}
    assert providers == {'KvcacheExecutionProvider'}
