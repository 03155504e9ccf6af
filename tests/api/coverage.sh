#!/usr/bin/env bash
# Checks that a test in a FOLDER calls every function declared in HEADER. Usage: coverage.sh HEADER FOLDER...
set -eu
header=$1
shift
functions=$(grep -oE '^KVC_API [^(]*\bkvc_[a-z_]+\(' "$header" | grep -oE 'kvc_[a-z_]+\($' | tr -d '(' | sort -u)
count=0
missing=0
for function in $functions; do
  count=$((count + 1))
  if ! grep -qE --include=*.cc --include=*.h --include=*.inc -r "\b$function\(" "$@"; then
    echo "not called by any test: $function"
    missing=$((missing + 1))
  fi
done
echo "$count functions declared, $missing without a test"
[ "$count" -ge 30 ] && [ "$missing" -eq 0 ]
