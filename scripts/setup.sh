#!/usr/bin/env bash
# Installs what the other scripts need: Debian packages (as root or by sudo; otherwise it lists what is missing), and a
# virtual environment in .venv. A second run does nothing.
#   bash scripts/setup.sh [demo|languages|test|windows|packaging|full]   languages: Rust, Go and Java; windows: as test, and
#                                                              mingw-w64 and Wine, which only windows.sh needs; packaging: as
#                                                              demo, and what only try_recipes.sh needs; full: all others
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
level=${1:-test}
case $level in
  demo | languages | test | windows | packaging | full) ;;
  *) echo "setup.sh: no level $level; demo, languages, test, windows, packaging or full" >&2 && exit 2 ;;
esac

has() { command -v "$1" > /dev/null; }
has_header() { [ -e "/usr/include/$1" ]; }
python_has() { python3 -c "$1" 2> /dev/null; }
java_is_17() { has javac && [ "$(javac -version 2>&1 | sed 's/[^0-9]*\([0-9]*\).*/\1/')" -ge 17 ]; }
packages=()
want() { # want PACKAGE TEST...: adds the package to the list if the test fails
  local package=$1
  shift
  "$@" || packages+=("$package")
}

want g++ has g++
want cmake has cmake
want ninja-build has ninja
want libxxhash-dev has_header xxhash.h
want python3 has python3
want python3-venv python_has 'import ensurepip, venv'
want python3-dev python_has \
  'import os, sysconfig; assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))'
if [ "$level" = test ] || [ "$level" = windows ] || [ "$level" = full ]; then
  want libgtest-dev has_header gtest/gtest.h
  want libbenchmark-dev has_header benchmark/benchmark.h
  want pkg-config has pkg-config
  want ccache has ccache
  want binutils has readelf
fi
if [ "$level" = windows ] || [ "$level" = full ]; then # cross builds compile GoogleTest from its sources
  want googletest test -e /usr/src/googletest/CMakeLists.txt
fi
if [ "$level" = windows ]; then
  want g++-mingw-w64-x86-64-posix has x86_64-w64-mingw32-g++-posix
  want wine has wine
  want wine64 test -e /usr/lib/wine/wine64
fi
if [ "$level" = packaging ]; then
  want pkg-config has pkg-config
  want dpkg-dev has dpkg-buildpackage
  want fakeroot has fakeroot
  want debhelper has dh
  want lintian has lintian
  want ruby has ruby
fi
if [ "$level" = full ]; then
  want clang-19 has clang-19
  want clang-format-19 has clang-format-19
  want clang-tidy-19 has clang-tidy-19
  want llvm-19 test -e /usr/lib/llvm-19/bin/llvm-symbolizer # function names in the reports of sanitizers
  want libclang-rt-19-dev test -e "/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.fuzzer-$(uname -m).a"
  want g++-aarch64-linux-gnu has aarch64-linux-gnu-g++
  want qemu-user-static has qemu-aarch64-static
  want lcov has lcov
  want abigail-tools has abidiff
  want libhiredis-dev has_header hiredis/hiredis.h
  want redis-server has redis-server
  want openssl has openssl # certificates of the tests of the Redis tier
  want libucx-dev has_header ucp/api/ucp.h
  want ucx-utils has ucx_perftest
  want chromium-headless-shell has chromium-headless-shell
  want libclang1-19 test -e /usr/lib/llvm-19/lib/libclang-19.so.1 # bindgen
fi
if [ "$level" = languages ] || [ "$level" = full ]; then
  want openjdk-17-jdk-headless java_is_17
  want maven has mvn
  want swig has swig
  has cargo || {
    echo "setup.sh: cargo 1.88 or newer is missing (Debian's is too old): install it by rustup" >&2
    exit 1
  }
fi

if [ ${#packages[@]} -gt 0 ]; then
  install=(apt-get install -y --no-install-recommends "${packages[@]}")
  if ! has apt-get; then
    echo "setup.sh: missing, by Debian's names: ${packages[*]}" >&2
    exit 1
  elif [ "$(id -u)" = 0 ]; then
    sudo=()
  elif has sudo && sudo -n true 2> /dev/null; then
    sudo=(sudo)
  else
    echo "setup.sh: missing packages, and neither root nor sudo without a password. Please run:" >&2
    echo "  sudo ${install[*]}" >&2
    exit 1
  fi
  echo "installing ${packages[*]}"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}" -qq > /dev/null
fi

python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo "setup.sh: Python 3.10 or newer is needed, this is $(python3 --version)" >&2
  exit 1
}
requirements=(requirements)
if [ "$level" = full ]; then
  requirements+=(requirements-full)
fi
for name in "${requirements[@]}"; do
  stamp=$venv/$name.stamp
  now="$(python3 --version) $(sha256sum < "scripts/$name.txt")"
  if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$now" ]; then
    echo "installing Python packages into .venv: $name"
    rm -f "$stamp"
    [ -x "$python" ] || python3 -m venv "$venv"
    "$python" -m pip install --quiet --requirement "scripts/$name.txt"
    echo "$now" > "$stamp"
  fi
done
if [ "$level" = languages ] || [ "$level" = full ]; then # Debian's Go is older than bindings/go/go.mod requires
  need=$(sed -n 's/^go //p' bindings/go/go.mod)
  have=$(GOTOOLCHAIN=local go env GOVERSION 2> /dev/null || echo none)
  if [ "$(printf '%s\n' "$need" "${have#go}" | sort -V | head -n 1)" != "$need" ] || [ "$have" = none ]; then
    echo "setup.sh: Go $need or newer is needed for bindings/go, found: $have. Please install it from go.dev/dl" >&2
    exit 1
  fi
  ( cd bindings/go && go mod download )
  ( cd examples/gemma/go && go mod download )
fi
