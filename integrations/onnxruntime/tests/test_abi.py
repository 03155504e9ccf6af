"""generate_abi.py --check: src/ort_abi.h in the place of the official headers, as it is and with a change."""
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent
ABI = (HERE / 'src/ort_abi.h').read_text()
VERSION = int(re.search(r'ORT_API_VERSION = (\d+)', ABI)[1])

pytestmark = pytest.mark.skipif(not (shutil.which('clang++-19') or shutil.which('clang++')), reason='no clang++')


def check(folder: Path, *changes) -> str:
    '''What the check reports; empty if it passes.'''
    text = ABI
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / 'onnxruntime_c_api.h').write_text(text)
    result = subprocess.run([sys.executable, HERE / 'generate_abi.py', '--check', folder], capture_output=True, text=True)
    assert result.returncode == (1 if result.stderr else 0)
    return result.stderr


LATER = (f'ORT_API_VERSION = {VERSION};', f'ORT_API_VERSION = {VERSION + 1};')
MORE_CALLBACKS = ('void* GetCustomOpDomains;', 'void* GetCustomOpDomains; void* Another;')


def test_the_same_and_a_later_version_pass(tmp_path):
    assert check(tmp_path) == ''
    assert check(tmp_path, LATER, MORE_CALLBACKS) == ''


@pytest.mark.parametrize('change, reported', [
    (('void* unused_3[48];', 'void* unused_3[49];'), 'OrtApi: GetTensorMutableData'),        # all later slots are shifted
    (('void* Compile;', ''), 'OrtEp: Compile is .* absent'),
    (('void* PrePackWeight;\n  void* SetSharedPrePackedWeight;', 'void* SetSharedPrePackedWeight;\n  void* PrePackWeight;'),
     'OrtKernelImpl: PrePackWeight'),
    (MORE_CALLBACKS, 'OrtEpFactory: the end'),
    (('int, int) noexcept', 'int, int64_t) noexcept'), 'OrtEpApi: KernelDefBuilder_SetSinceVersion'),
    (('using OrtKernelCreateFunc = OrtStatus*', 'using OrtKernelCreateFunc = void'), 'function types: OrtKernelCreateFunc'),
    (('ORT_FAIL = 1', 'ORT_FAIL = 3'), 'OrtErrorCode: ORT_FAIL is 1, but officially 3'),
    ((f'ORT_API_VERSION = {VERSION};', f'ORT_API_VERSION = {VERSION - 1};'), 'ORT_API_VERSION is'),
], ids=['slot', 'callback missing', 'callbacks in another order', 'callback added', 'signature', 'function type', 'constant',
        'older version'])
def test_a_difference_is_reported(tmp_path, change, reported):
    assert re.search(reported, check(tmp_path, change))
