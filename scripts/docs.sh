#!/usr/bin/env bash
# Builds the site of the documentation: all pages, and the reference of each language. A second run does nothing until
# a source changes. The reference of Python has the docstrings of the extension module, so the
# package is built if it is not in .venv.
#   bash scripts/docs.sh     then open build/site/index.html, or publish that folder as it is
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
set_up languages cargo go java
layer=$root/.venv-docs
site=$root/build/site
pages=$root/build/docs/pages
stamp=$layer/requirements.stamp
now="$("$python" --version) $(sha256sum < scripts/requirements-docs.txt)"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$now" ]; then
  rm -rf "$layer"
  "$python" -m venv "$layer"
  layer_over_venv "$layer"
  "$layer/bin/python" -m pip install --quiet --requirement scripts/requirements-docs.txt
  echo "$now" > "$stamp"
fi

# Every file that a page is made of. Cargo, Go and Maven write none of these.
inputs=(CHANGELOG.md CONTRIBUTING.md LICENSE README.md SECURITY.md benchmarks bindings docs examples include integrations
  scripts/docs.sh tests/tidy)
now="$now $(fingerprint "${inputs[@]}")"
if [ -f "$root/build/docs/site.stamp" ] && [ "$(cat "$root/build/docs/site.stamp")" = "$now" ]; then
  echo "build/site is up to date"
  exit 0
fi
install_python_package
rm -rf "$root/build/docs" "$site"
mkdir -p "$pages/bindings/rust/api" "$pages/bindings/java/api"

( cd bindings/rust
  target=${CARGO_TARGET_DIR:-$root/build/rust}
  rm -rf "$target/doc"
  env -u KVCACHE_LIB_DIR DOCS_RS=1 CARGO_TARGET_DIR="$target" RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --no-deps
  cp -r "$target/doc/." "$pages/bindings/rust/api" )
javadoc -quiet -Xdoclint:none -notimestamp -windowtitle "libkvcache for Java" -d "$pages/bindings/java/api" \
  -sourcepath bindings/java/src/main/java:bindings/java/src/stubs -subpackages dev.kvcache
( cd bindings/go && go run "$root/docs/site/go_reference.go" . ) > "$root/build/docs/go.md"
"$layer/bin/python" docs/site/pages.py "$pages" "$root/build/docs/go.md" "$root/build/docs/mkdocs.yml"
NO_MKDOCS_2_WARNING=1 "$layer/bin/python" -m mkdocs build --quiet --strict --config-file "$root/build/docs/mkdocs.yml" \
  --site-dir "$site"
echo "$now" > "$root/build/docs/site.stamp"
echo "$site/index.html"
