#!/bin/sh
# Runs the quickstart twice on a random model: the second time its chunks are in the store.
#   run_quickstart.sh QUICKSTART MAKE_RANDOM_MODEL
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$2" "$work/model.gguf"
"$1" "$work/model.gguf" "$work/store" >"$work/first"
"$1" "$work/model.gguf" "$work/store" >"$work/second"
cat "$work/second"
grep -q "stored" "$work/first"
if grep -q "stored" "$work/second"; then
  echo "the second run stored a chunk again"
  exit 1
fi
# An absent model is an error with a sentence, not a crash.
code=0
"$1" "$work/absent.gguf" "$work/store" 2>"$work/error" || code=$?
test "$code" -eq 1
grep -q "absent.gguf" "$work/error"
