#!/bin/sh
# Compares the library's ABI with the committed baseline: growing an opaque struct passes, changing
# a public one or losing a function fails. Exit code 77 skips.
#   compare_abi.sh LIBRARY INCLUDE_DIR BASELINE [--update]
set -eu
library=$1 include=$2 baseline=$3
if ! command -v abidw >/dev/null || ! command -v abidiff >/dev/null; then
  echo "skipped: abidw and abidiff are not installed (Debian package abigail-tools)"
  exit 77
fi
dump=$(mktemp)
trap 'rm -f "$dump"' EXIT
# --no-corpus-path and the rest: nothing of the machine it was made on goes into the file.
abidw --headers-dir "$include" --drop-private-types --no-corpus-path --no-comp-dir-path \
  --no-show-locs --no-elf-needed --exported-interfaces-only --out-file "$dump" "$library"
sed -i "s#path='[^']*/src/#path='src/#" "$dump"
if ! grep -q "<function-decl" "$dump"; then
  echo "skipped: $library has no debug information"
  exit 77
fi
if [ "${4:-}" = --update ]; then
  cat "$dump" >"$baseline"
  echo "wrote $baseline"
  exit 0
fi
# New functions are no difference: they break nobody.
code=0
abidiff --no-added-syms --harmless "$baseline" "$dump" || code=$?
if [ $code -ne 0 ]; then
  echo "the ABI differs from $baseline. If that is meant (before the first release, or appended"
  echo "members), run: tests/abi/compare_abi.sh $library $include $baseline --update"
  exit 1
fi
echo "the ABI is that of $baseline"
