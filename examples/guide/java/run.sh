#!/usr/bin/env bash
# Runs a program of the guide with the package in bindings/java. Sets up what it needs, and builds the jar if its sources are newer.
#   bash examples/guide/java/run.sh Hello01
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../../scripts/common.sh"
set_up languages javac mvn swig
package=$root/bindings/java build=$root/build
jar=$build/java/kvcache-0.1.0.jar
if [ ! -e "$jar" ] || [ -n "$(find "$package/src/main" "$package/native" "$package/pom.xml" -newer "$jar" -print -quit)" ]; then
  (cd "$package" && mvn -q -B -ntp package -DskipTests) >&2
fi
mkdir -p "$build/guide"
javac -Xlint:all -Werror -cp "$jar" -d "$build/guide/java" "$here"/*.java
exec java -cp "$jar:$build/guide/java" "$@"
