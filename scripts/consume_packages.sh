#!/usr/bin/env bash
# Installs each package of scripts/package.sh into an empty folder, and runs a program that uses it alone.
#   consume_packages.sh [tarball|wheel|crates|go|jar ...]     all of them by default
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up full cmake cargo go java jar
packages=$root/build/packages
release=${KVCACHE_RELEASE_BUILD:-$root/build/release}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
on_aarch64=(qemu-aarch64-static -L /usr/aarch64-linux-gnu)

tarball() { # it is unpacked and moved; compilers, CMake and dlopen find it by its path alone
  for way in install pkg_config find_package dlopen; do
    python3 tests/consumer/consumer_test.py $way --build "$release" --tarball "$packages"/kvcache-*.tar.gz
  done
}

wheel() {
  mkdir "$place/python"
  "$python" -m venv --without-pip "$place/python/venv"
  "$python" -m pip --python "$place/python/venv/bin/python" install --quiet "$packages"/kvcache-*.whl
  program_of bindings/python/README.md python > "$place/python/program.py"
  ( cd "$place/python"
    venv/bin/python program.py | tee output
    grep -q '^preempt' output
    venv/bin/kvcache info | grep '^library .*/venv/'
    venv/bin/python -c 'import kvcache, pathlib; folder = pathlib.Path(kvcache.__file__).parent
for name in ("LICENSE", "LICENSE.dlpack", "LICENSE.nanobind", "LICENSE.xxhash"): assert (folder / "licenses" / name).stat().st_size > 500
assert (pathlib.Path(kvcache.get_include()) / "dlpack/dlpack.h").exists()' )
}

crates() { CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/build/rust} bash scripts/consume_rust.sh; }

go_module() { # other modules come from the cache that the set-up filled
  local version module=kvcache.dev/kvcache downloads library expected
  version=$(cat "$packages/goproxy/$module/@v/list")
  downloads=$(go env GOMODCACHE)/cache/download
  mkdir -p "$place/go/library"
  tar -xzf "$packages"/kvcache-*.tar.gz --directory "$place/go/library" --strip-components 1
  library=$(echo "$place"/go/library/lib*/libkvcache.so.0)
  program_of bindings/go/README.md go > "$place/go/main.go"
  ( cd "$place/go"
    export GOPROXY="file://$packages/goproxy,file://$downloads,off" GOSUMDB=off GOMODCACHE=$place/go/cache GOFLAGS=-modcacherw
    printf 'module program\n\ngo %s\n\nrequire %s %s\n' "$(sed -n 's/^go //p' "$root/bindings/go/go.mod")" $module "$version" > go.mod
    CGO_ENABLED=0 go build -mod=mod -o program .
    test -f "$GOMODCACHE/$module@$version/LICENSE"
    expected=$(sed -n 's|.*fmt.Println(.*) // ||p' main.go)
    test "$(env -u KVCACHE_LIBRARY ./program)" = "$expected" # the library in the module
    CGO_ENABLED=0 go build -mod=mod -tags kvcache_external -o without .
    test "$(KVCACHE_LIBRARY=$library ./without)" = "$expected"
    ! env -u KVCACHE_LIBRARY ./without 2> message && grep 'the Go module itself: no library for' message
    env -u KVCACHE_LIBRARY ./program
    if "$python" -m zipfile -l "$packages/goproxy/$module/@v/$version.zip" | grep -q libkvcache_linux_arm64; then # after the preset aarch64
      GOARCH=arm64 CGO_ENABLED=0 go build -mod=mod -o program_arm64 .
      test "$(env -u KVCACHE_LIBRARY "${on_aarch64[@]}" ./program_arm64)" = "$expected"
      echo "and on aarch64, under qemu"
    fi )
}

jar() { # the libraries come out of the jar, because nothing else names one
  mkdir "$place/java"
  program_of bindings/java/README.md java > "$place/java/Program.java"
  ( cd "$place/java"
    env -u KVCACHE_LIBRARY java -Xcheck:jni -Djava.library.path=none -Dkvcache.cache=cache -cp "$packages"/kvcache-*.jar \
      Program.java > output
    cat output
    test "$(cat output)" = "$(sed -n 's|.*System.out.println(.*); // ||p' Program.java)"
    ls cache/*/libkvcache.so.? cache/*/libkvcache_jni.so
    command jar --list --file "$packages"/kvcache-*.jar > contents
    grep -x META-INF/LICENSE contents
    grep -x META-INF/LICENSE.dlpack contents && grep -x META-INF/LICENSE.xxhash contents
    if grep -q natives/Linux-aarch64/ contents; then # after the preset aarch64. The runtime there cannot compile
      name=$(sed -n 's/^public class \([A-Za-z]*\).*/\1/p' Program.java)
      cp Program.java "$name.java"
      javac --release 17 -cp "$packages"/kvcache-*.jar -d . "$name.java"
      env -u KVCACHE_LIBRARY "${on_aarch64[@]}" "$(bash "$root/scripts/setup_aarch64.sh")" -Xint -Xcheck:jni \
        --enable-native-access=ALL-UNNAMED -Dkvcache.cache=cache-aarch64 -cp "$(echo "$packages"/kvcache-*.jar):." "$name" \
        > output-aarch64
      diff output output-aarch64
      echo "and on aarch64, under qemu"
    fi )
}

[ $# -gt 0 ] || set -- tarball wheel crates go jar
for kind in "$@"; do
  echo "== $kind"
  case $kind in
    tarball|wheel|crates|jar) $kind ;;
    go) go_module ;;
    *) echo "consume_packages.sh: no package of the kind $kind" >&2 && exit 1 ;;
  esac
done
