#!/usr/bin/env bash
# Runs Gemma.java with the package in bindings/java. Builds the jar first if its sources are newer.
#   bash examples/gemma/java/run.sh FILE.safetensors [NEW TOKENS]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package=$here/../../../bindings/java
jar=$here/../../../build/java/kvcache-0.1.0.jar
if [ ! -e "$jar" ] || [ -n "$(find "$package/src/main" "$package/native" "$package/pom.xml" -newer "$jar" -print -quit)" ]; then
  (cd "$package" && mvn -q -B -ntp package -DskipTests) >&2
fi
exec java -Xmx3g --add-modules jdk.incubator.vector -cp "$jar" "$here/Gemma.java" "$@"
