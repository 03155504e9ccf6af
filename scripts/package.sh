#!/usr/bin/env bash
# Builds all packages from the release build, into build/packages:
#   kvcache-VERSION-SYSTEM.tar.gz     library, headers, CMake package, pkg-config file, licences; can be moved
#   kvcache-VERSION-*.whl             the Python package, library and headers within, for every CPython from 3.10 on
#   kvcache-sys-*.crate kvcache-*.crate
#   goproxy/                          the Go module, as a module proxy serves it (GOPROXY=file://...)
#   kvcache-VERSION.jar               Java, natives within
#   kvcache-VERSION-windows-x86_64.zip   as the tarball, from the build of scripts/windows.sh; only if it is named
#   libkvcache-VERSION.tar.gz   the sources: the files that git tracks, and the headers of DLPack and xxHash; only if it is named
#   recipes/                  the recipes of packaging/ for that source archive; only if they are named. KVCACHE_RELEASES is the
#                             address of the folder where the archive is published, by default that of build/packages
#
#   package.sh [tarball|wheel|crates|go|jar|windows|source|recipes ...]     all from tarball to jar by default
# The C library of the build machine decides which systems can run the result: each symbol has the newest version that the
# linker found. Debian 12 with gcc 12 gives glibc 2.34 and libstdc++ 11 (GLIBCXX_3.4.29), called manylinux_2_34.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[ $# -gt 0 ] || set -- tarball wheel crates go jar
from_release=$(printf '%s\n' "$@" | grep -vxE 'windows|source|recipes' || true) # what is made from the release build
if [ -n "$from_release" ]; then
  set_up full cmake ninja cargo go mvn jar auditwheel
elif [[ " $* " == *" windows "* ]]; then
  set_up windows cmake
else
  set_up demo
fi
packages=$root/build/packages
platform=$(uname -m)
policy=manylinux_2_34_$platform
dlpack=$(dlpack_include_dir)
version=$(sed -n 's/^#define KVC_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' include/kvcache.h | paste -sd .)
release=${KVCACHE_RELEASE_BUILD:-$root/build/release}
aarch64=${KVCACHE_AARCH64_BUILD:-$root/build/aarch64} # the preset aarch64. If it was built, the Go module and the jar have its library too
# Equal inputs give equal packages: they hold no build time, owner or folder order. A zip file cannot hold a time before
# 1980, so its time is the second day of that year.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-315619200}
stripped=$(mktemp -d)
trap 'rm -rf "$stripped"' EXIT

release_build() {
  [ -f "$release/CMakeCache.txt" ] || PATH=$venv/bin:$PATH cmake --preset release -DPython3_EXECUTABLE="$python"
  cmake --build "$release" --target kvcache --parallel "$jobs"
}

# Prints the path of a build's library without its symbols, which is made at the first call.
stripped_library() { # BUILD STRIP
  local library=$stripped/$2/libkvcache.so
  if [ ! -f "$library" ]; then
    mkdir -p "$stripped/$2"
    "$2" -o "$library" "$1/src/libkvcache.so" || return # explicit, because `set -e` has no effect in $(...)
  fi
  echo "$library"
}

tarball() {
  local name=kvcache-$version-linux-$platform stage
  stage=$(mktemp -d)
  cmake --install "$release" --prefix "$stage/$name" --strip
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --directory "$stage" --create "$name" |
    gzip --no-name > "$packages/$name.tar.gz"
  rm -rf "$stage"
}

wheel() {
  local raw
  raw=$(mktemp -d)
  PATH=$venv/bin:$PATH CMAKE_BUILD_PARALLEL_LEVEL=$jobs \
    "$python" -m pip wheel --no-build-isolation --no-deps --wheel-dir "$raw" ./bindings/python
  rm -f "$packages"/*.whl
  # Fails for a symbol that is newer than the policy, and for a library that is neither in the wheel nor on every system.
  PATH=$venv/bin:$PATH "$python" -m auditwheel repair --plat "$policy" --only-plat --wheel-dir "$packages" "$raw"/*.whl
  rm -rf "$raw"
  "$python" -m auditwheel show "$packages"/*.whl
}

crates() {
  local target=${CARGO_TARGET_DIR:-$root/build/rust}
  CARGO_TARGET_DIR=$target DLPACK_INCLUDE_DIR=$dlpack KVCACHE_LIB_DIR=$release/src bash scripts/package_rust.sh
  rm -f "$packages"/*.crate
  cp "$target/package/kvcache-sys-$version.crate" "$target/package/kvcache-$version.crate" "$packages"
}

go_module() {
  local stage library libraries
  stage=$(mktemp -d)
  library=$(stripped_library "$release" strip)
  libraries=(linux_"$(go env GOARCH)"="$library")
  if [ -f "$aarch64/src/libkvcache.so" ]; then
    library=$(stripped_library "$aarch64" aarch64-linux-gnu-strip)
    libraries+=(linux_arm64="$library")
  fi
  xxhash_license > "$stage/xxhash" # its functions are compiled into the libraries
  rm -rf "$packages/goproxy"
  python3 scripts/package_go.py "$packages/goproxy" "v$version" --licence LICENSE.xxhash="$stage/xxhash" "${libraries[@]}"
  echo "libraries in the Go module: ${libraries[*]%%=*}"
  rm -rf "$stage"
}

java_jar() {
  local stage library
  stage=$(mktemp -d)
  library=$(stripped_library "$release" strip)
  ( cd bindings/java
    KVCACHE_LIBRARY=$library DLPACK_INCLUDE_DIR=$dlpack mvn --batch-mode --quiet -DskipTests \
      -Dproject.build.outputTimestamp="$SOURCE_DATE_EPOCH" clean package )
  [ ! -f "$aarch64/src/libkvcache.so" ] || aarch64_natives "$stage/natives/Linux-aarch64"
  mkdir -p "$stage/META-INF" "$stage/natives"
  cp LICENSE "$stage/META-INF/LICENSE"
  cp LICENSE "$stage/META-INF/LICENSE.dlpack" # its structs are compiled in, and its licence is the same text
  xxhash_license > "$stage/META-INF/LICENSE.xxhash" # its functions are compiled in
  cp "build/java/kvcache-$version.jar" "$packages"
  jar --update --date="$(date --utc --date="@$SOURCE_DATE_EPOCH" +%FT%TZ)" --file "$packages/kvcache-$version.jar" \
    -C "$stage" META-INF -C "$stage" natives
  rm -rf "$stage"
}

# The JNI layer and the library of the jar, for another architecture.
aarch64_natives() { # FOLDER
  local build=$root/build/java-aarch64 library
  library=$(stripped_library "$aarch64" aarch64-linux-gnu-strip)
  cmake -S bindings/java/native -B "$build" -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64-linux-gnu.cmake" \
    -DCMAKE_BUILD_TYPE=Release -DJAVA_HOME="$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")" \
    -DDLPACK_INCLUDE_DIR="$dlpack" -DNATIVES="$1" -DKVCACHE_LIBRARY="$library" > /dev/null
  cmake --build "$build"
  aarch64-linux-gnu-strip --strip-unneeded "$1"/libkvcache_jni.so
}

# The library as a DLL, its import library, headers and so on. The run-time libraries of gcc are linked into it.
windows_zip() {
  local name=kvcache-$version-windows-x86_64 stage package
  stage=$(mktemp -d)
  cmake --install "${KVCACHE_WINDOWS_BUILD:-$root/build/windows}" --prefix "$stage/$name" --strip
  for package in mingw-w64-common gcc-mingw-w64-base; do
    cp "/usr/share/doc/$package/copyright" "$stage/$name/share/licenses/kvcache/LICENSE.$package"
  done
  "$python" scripts/make_zip.py "$stage" "$packages/$name.zip"
  rm -rf "$stage"
}

# The files of the working tree that git tracks, so that changes can be tried before they are committed. The time is that of
# the last commit. The headers are those of .venv and of the system: recipes need nothing else but a compiler and CMake.
source_archive() {
  local name=libkvcache-$version stage
  stage=$(mktemp -d)
  mkdir -p "$stage/$name/include/dlpack" "$stage/$name/include/xxhash"
  git ls-files -z | tar --create --null --files-from - | tar --extract --directory "$stage/$name"
  cp "$dlpack/dlpack/dlpack.h" "$stage/$name/include/dlpack"
  cp LICENSE "$stage/$name/LICENSE.dlpack" # DLPack's licence is the same text
  cp "$(xxhash_include_dir)/xxhash.h" "$stage/$name/include/xxhash"
  xxhash_license > "$stage/$name/LICENSE.xxhash"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+w --mtime="@$(git log -1 --format=%ct)" \
    --directory "$stage" --create "$name" | gzip --no-name > "$packages/$name.tar.gz"
  rm -rf "$stage"
}

recipes() {
  rm -rf "$packages/recipes"
  "$python" scripts/fill_recipes.py "$packages/libkvcache-$version.tar.gz" "$packages/recipes" \
    --releases "${KVCACHE_RELEASES:-file://$packages}"
}

mkdir -p "$packages"
[ -z "$from_release" ] || release_build
for kind in "$@"; do
  case $kind in
    tarball|wheel|crates|recipes) $kind ;;
    source) source_archive ;;
    go) go_module ;;
    jar) java_jar ;;
    windows) windows_zip ;;
    *) echo "package.sh: no package of the kind $kind" >&2 && exit 1 ;;
  esac
done
ls -l "$packages"
[ -n "$from_release" ] || exit 0
needs() { objdump -T "$release/src/libkvcache.so.0" | grep -o "$1[0-9.]*" | sort -V | tail -n 1; }
echo "the library needs $(needs GLIBC_) and $(needs GLIBCXX_)"
