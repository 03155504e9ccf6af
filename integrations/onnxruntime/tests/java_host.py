"""ONNX Runtime for Java, which runs a decoder by Tokens.java."""
import json
import subprocess
from pathlib import Path

from models import PLUGIN, PROVIDER

HERE = Path(__file__).parent
VERSION = '1.29.0'  # another release of the host than the one from PyPI


def jar() -> Path:
    """The package from Maven Central."""
    folder = HERE.parents[2] / 'build' / 'onnxruntime' / 'java'
    found = folder / f'onnxruntime-{VERSION}.jar'
    if not found.exists():
        subprocess.run(['mvn', '-q', '-B', '-ntp', '-f', HERE / 'pom.xml', f'-Donnxruntime={VERSION}', f'-Dfolder={folder}',
                        'dependency:copy-dependencies'], check=True, stdout=subprocess.DEVNULL)
    return found


def tokens(model: Path, sizes: list, prompts: list, folder: Path) -> tuple:
    """The tokens after each prompt, by ONNX Runtime's kernels and by the plug-in. `sizes`: tokens to generate, layers, KV heads,
    dims. The profile of the run, in `folder`, must say that the plug-in computed."""
    listed = folder / 'prompts.txt'
    listed.write_text(''.join(' '.join(map(str, prompt)) + '\n' for prompt in prompts))
    command = ['java', '-cp', jar(), HERE / 'Tokens.java', model, PLUGIN, *map(str, sizes), listed]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f'java ended with {done.returncode}: {done.stderr}'
    version, *lists, profile = done.stdout.splitlines()
    assert version == VERSION and len(lists) == 2 * len(prompts)
    events = json.loads((folder / profile).read_text())
    providers = {event['args']['provider'] for event in events if event.get('args', {}).get('op_name') == 'GroupQueryAttention'}
    assert providers == {PROVIDER}
    lists = [json.loads(line) for line in lists]
    return lists[:len(prompts)], lists[len(prompts):]
