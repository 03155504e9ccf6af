# Sourced by the other scripts: paths, and the Python package in .venv.
set -euo pipefail
case ${1:-} in
  --help | -h) # the comment at the head of the script
    awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"
    exit 0
    ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
python=$venv/bin/python
jobs=$(nproc)
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1
export HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
for place in "$HOME/.cargo/bin" /usr/local/go/bin; do # rustup and Go install themselves here
  case :$PATH: in *":$place:"*) ;; *) [ ! -d "$place" ] || PATH=$PATH:$place ;; esac
done
export CC=${CC:-gcc} CXX=${CXX:-g++} # one name everywhere, because ccache distinguishes c++ from g++
if command -v ccache > /dev/null; then # the same objects are compiled for the library, the wheel and a subproject
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

# set_up LEVEL TOOL...: runs scripts/setup.sh for a script that works in a fresh clone, unless a calling script did that. Then every
# tool must be in .venv or in the path. With KVC_SET_UP_ONLY the script ends here; tests/python/test_scripts.py uses that.
# The level `full` has what every level has but `windows` and `packaging`.
set_up() {
  local level=$1 tool
  shift
  case "${KVC_SET_UP:-} $level" in
    "full "[!wp]* | "$level $level" | "test demo" | "languages demo" | "packaging demo") ;;
    *)
      bash scripts/setup.sh "$level"
      export KVC_SET_UP=$level
      ;;
  esac
  for tool in "$@"; do
    PATH=$venv/bin:$PATH type -P "$tool" > /dev/null || {
      echo "$(basename "$0"): $tool is missing, also after scripts/setup.sh $level" >&2
      exit 1
    }
  done
  if [ -n "${KVC_SET_UP_ONLY:-}" ]; then
    echo "$(basename "$0"): set up, with DLPack in $(dlpack_include_dir)"
    exit 0
  fi
}

# The folder that has dlpack/dlpack.h.
dlpack_include_dir() { echo "${DLPACK_INCLUDE_DIR:-$("$venv/bin/tvm-ffi-config" --dlpack-includedir)}"; }

# The folder that has xxhash.h, and the licence with which that begins.
xxhash_include_dir() { echo "${XXHASH_INCLUDE_DIR:-/usr/include}"; }
xxhash_license() { sed '/\*\//q' "$(xxhash_include_dir)/xxhash.h"; }

# One hash of the contents of files and folders.
fingerprint() {
  find "$@" -type f -not -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1
}

# Builds bindings/python and installs it into .venv. Does nothing if no source changed since the last build.
install_python_package() {
  ( flock 8; install_python_package_alone ) 8> "$venv/kvcache.lock" # two parts of test.sh may run this at once
}
install_python_package_alone() {
  local stamp=$venv/kvcache.stamp now
  now=$(fingerprint CMakeLists.txt cmake include src kernels tiers bindings/python)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$now" ]; then
    echo "kvcache is up to date in .venv"
    return
  fi
  rm -f "$stamp"
  PATH=$venv/bin:$PATH CMAKE_BUILD_PARALLEL_LEVEL=$jobs \
    "$python" -m pip install --no-build-isolation --force-reinstall --no-deps ./bindings/python ||
    return 1 # explicit, because `set -e` has no effect in a condition
  echo "$now" > "$stamp"
}

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# Makes the packages of .venv visible in another environment, after its own.
layer_over_venv() { # ENVIRONMENT
  # With this variable, functions of the CUDA part of PyTorch may be missing.
  printf '%s\n' "$(packages_of "$venv")" 'import os; os.environ.setdefault("TORCH_USE_RTLD_GLOBAL", "1")' \
    > "$(packages_of "$1")/layer.pth"
}

# Makes empty libraries for those that PyTorch links and that are missing. One of them must define a variable.
make_empty_cuda_libraries() { # ENVIRONMENT
  local place name link
  place=$(packages_of "$1")
  for name in $(ldd "$place"/torch/lib/*.so | awk '/not found/ { print $1 }' | sort -u); do
    link=("$CC" -shared -fPIC -o "$place/torch/lib/$name" -Wl,-soname,"$name" -x c -)
    case $name in
      libnvshmem_host.*)
        "${link[@]}" -Wl,--version-script=<(echo 'NVSHMEM { *; };') \
          <<< 'int nvshmem_selected_device_transport; void nvshmem_init(void) {}'
        ;;
      *) "${link[@]}" < /dev/null ;;
    esac
  done
}

# Makes build/venv-NAME for the package in integrations/NAME: the packages of its requirements.txt, and itself, over
# .venv-transformers. A second run installs what changed in this checkout.
set_up_integration() { # NAME
  local here=$root/integrations/$1 layer=$root/build/venv-$1 base=$root/.venv-transformers now copy
  set_up demo
  install_python_package
  bash scripts/setup_transformers.sh
  now="$("$python" --version) $(cat "$here/requirements.txt" "$base/requirements.stamp" | sha256sum)"
  if [ ! -f "$layer/requirements.stamp" ] || [ "$(cat "$layer/requirements.stamp")" != "$now" ]; then
    rm -rf "$layer"
    mkdir -p "$root/build"
    "$python" -m venv "$layer"
    layer_over_venv "$layer"
    packages_of "$base" >> "$(packages_of "$layer")/layer.pth"
    "$layer/bin/python" -m pip install --quiet --no-deps --requirement "$here/requirements.txt"
    echo "$now" > "$layer/requirements.stamp"
  fi
  now=$(fingerprint "$here/pyproject.toml" "$here/kvcache_$1")
  if [ ! -f "$layer/package.stamp" ] || [ "$(cat "$layer/package.stamp")" != "$now" ]; then
    copy=$(mktemp -d) # setuptools writes beside the sources
    cp -r "$here/pyproject.toml" "$here/README.md" "$here/kvcache_$1" "$copy"
    "$layer/bin/python" -m pip install --quiet --no-deps --no-build-isolation --force-reinstall "$copy"
    rm -rf "$copy"
    echo "$now" > "$layer/package.stamp"
  fi
}

# The first program in a language of a README.
program_of() { # README LANGUAGE
  sed -n "/^\`\`\`$2\$/,/^\`\`\`\$/p" "$1" | sed '1d; /^```$/,$d'
}
