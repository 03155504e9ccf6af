#!/usr/bin/env bash
# Tries the recipes of packaging/. For each package manager, it makes the package from the source archive of
# `package.sh source`, installs the package into an empty folder, and runs a program with it. No recipe is published, and no
# package of another project is fetched. packaging/README.md says what replaces managers that cannot be installed here.
#   try_recipes.sh [--junitxml=FILE] [--whole] [debian|conan|conda|vcpkg|homebrew ...]     all of them by default
# The library has only the portable kernels, because the others take minutes to compile. With --whole it has all of them.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up packaging cmake ninja dpkg-buildpackage dh lintian pkg-config ruby
quick=(KVCACHE_SCALAR_ONLY KVCACHE_JOIN_SOURCES)
junit=
case ${1:-} in --junitxml=*) junit=${1#*=} && shift ;; esac
[ "${1:-}" != --whole ] || { quick=() && shift; }
options=("${quick[@]/%/=ON}")
options=("${options[@]/#/-D}")
place=$root/build/recipes
mkdir -p "$place"
# Recipes that compile the same with the same options share objects: paths below this folder are hashed as relative ones. Each has
# its build folder in that of the sources. The locale is hashed too, and conda sets its own. debhelper and conda set another HOME,
# so the folder of ccache is given.
export CCACHE_BASEDIR=$place LC_ALL=C
if type -P ccache > /dev/null; then
  CCACHE_DIR=$(ccache --get-config cache_dir)
  export CCACHE_DIR
fi
recipes=$root/build/packages/recipes
layer=$root/build/venv-recipes # Conan and rattler-build
environment() {
  local now
  now="$("$python" --version) $(sha256sum < scripts/requirements-recipes.txt)"
  if [ ! -f "$layer/requirements.stamp" ] || [ "$(cat "$layer/requirements.stamp")" != "$now" ]; then
    rm -rf "$layer"
    "$python" -m venv "$layer"
    "$layer/bin/python" -m pip install --quiet --requirement scripts/requirements-recipes.txt
    echo "$now" > "$layer/requirements.stamp"
  fi
}

# Compiles a program as CMake finds the package in a folder, and the first program of the guide by pkg-config.
use() { # PREFIX PKGCONFIG_FOLDER
  cmake -G Ninja -S tests/consumer/find_package -B "$1-use" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_BUILD_TYPE=Release > /dev/null
  cmake --build "$1-use" > /dev/null
  grep "^kvcache_DIR:.*=$1/" "$1-use/CMakeCache.txt" # this package, and no other one
  "$1-use/consumer"
  cc -std=c11 -Wall -Werror examples/guide/c/01_hello.c examples/guide/c/model.c \
    $(PKG_CONFIG_PATH=$2 pkg-config --cflags --libs kvcache) -Wl,-rpath,"$(dirname "$2")" -o "$1-use/hello"
  "$1-use/hello" | diff examples/guide/output/01_hello.txt -
}

debian() {
  local prefix=$place/debian/root multiarch
  multiarch=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
  mkdir -p "$place/debian" "$prefix/var/lib/dpkg/updates" "$prefix/var/lib/dpkg/info"
  : > "$prefix/var/lib/dpkg/status"
  cp "$archive" "$place/debian/libkvcache_$version.orig.tar.gz"
  tar -xf "$archive" --directory "$place/debian"
  cp -r "$recipes/debian" "$place/debian/libkvcache-$version"
  ( cd "$place/debian/libkvcache-$version"
    DEB_BUILD_PROFILES=${quick:+pkg.libkvcache.quick} DEB_BUILD_OPTIONS=${quick:+noautodbgsym} \
      dpkg-buildpackage --unsigned-source --unsigned-changes )
  lintian --fail-on error,warning --info --suppress-tags initial-upload-closes-no-bugs "$place"/debian/*.changes # nothing was requested yet
  dpkg --root="$prefix" --force-depends --log=/dev/null --install "$place"/debian/libkvcache*_"$version"-*.deb
  use "$prefix/usr" "$prefix/usr/lib/$multiarch/pkgconfig"
  LD_LIBRARY_PATH=$prefix/usr/lib/$multiarch PKG_CONFIG_PATH=$prefix/usr/lib/$multiarch/pkgconfig ROOT=$prefix \
    "$recipes/debian/tests/hello"
}

conan() {
  local conan=$layer/bin/conan variables
  variables=$(printf ', "%s": "ON"' "${quick[@]}")
  export CONAN_HOME=$place/conan
  "$conan" profile detect
  printf '[platform_tool_requires]\ncmake/%s\n' "$(cmake --version | sed -n 's/^cmake version //p')" >> "$CONAN_HOME/profiles/default"
  "$conan" create "$recipes/conan" --no-remote -c tools.cmake.cmaketoolchain:generator=Ninja \
    ${quick:+-c "tools.cmake.cmaketoolchain:extra_variables={${variables#, }}"}
}

conda() { "$layer/bin/python" tests/recipes/conda.py "$recipes/conda/recipe.yaml" "$place/conda" "${options[@]}"; }

vcpkg() {
  local list
  printf -v list '%s;' "${options[@]}"
  cmake -DPORT_DIR="$recipes/vcpkg" -DARCHIVE="$archive" -DTREE="$place/vcpkg" -DOPTIONS="${list%;}" -P tests/recipes/vcpkg.cmake
  use "$place/vcpkg/packages" "$place/vcpkg/packages/lib/pkgconfig"
}

homebrew() {
  ruby -wc "$recipes/homebrew/libkvcache.rb"
  ruby tests/recipes/homebrew.rb "$recipes/homebrew/libkvcache.rb" "$place/homebrew" "${options[@]}"
  use "$place/homebrew/prefix" "$place/homebrew/prefix/lib/pkgconfig"
}

[ $# -gt 0 ] || set -- debian conan conda vcpkg homebrew
for name in "$@"; do
  [[ $name =~ ^(debian|conan|conda|vcpkg|homebrew)$ ]] || { echo "try_recipes.sh: no recipe for $name" >&2 && exit 2; }
done
environment
bash scripts/package.sh source recipes
archive=$(echo "$root"/build/packages/libkvcache-*.tar.gz)
version=${archive##*-} version=${version%.tar.gz}
failed=0
cases=
for name in "$@"; do
  echo "== $name"
  begin=$SECONDS
  rm -rf "${place:?}/$name" "$place/$name-use"
  set +e # not as a condition, because bash would then continue after errors inside
  ( set -e && $name )
  status=$?
  set -e
  cases+="<testcase classname=\"recipes\" name=\"$name\" time=\"$((SECONDS - begin))\">"
  if [ $status = 0 ]; then
    echo "== $name: passed, $((SECONDS - begin)) s"
  else
    echo "== $name: FAILED, $((SECONDS - begin)) s"
    cases+='<failure message="see the output"/>'
    failed=$((failed + 1))
  fi
  cases+="</testcase>"
done
[ -z "$junit" ] || echo "<testsuite name=\"recipes\">$cases</testsuite>" > "$junit"
echo "$(($# - failed)) passed, $failed failed"
[ $failed = 0 ]
