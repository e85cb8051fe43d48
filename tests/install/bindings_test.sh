#!/bin/sh
# Installs to a fresh prefix, and compiles and runs the smallest program of a language against nothing but that.
#   bindings_test.sh LANGUAGE CMAKE BUILD_DIR EXAMPLES TOOL MODEL.gguf
# TOOL: the interpreter, javac, or go. A model that is not there is looked for in $BLEND_DATA_DIR; without it the
# test is skipped (77).
set -eu
language=$1 cmake=$2 build=$3 examples=$4 tool=$5 model=$6
if [ ! -e "$model" ]; then
  name=$(basename "$model")
  for model in "${BLEND_DATA_DIR:-/nowhere}/real-models/$name" "${BLEND_DATA_DIR:-/nowhere}/$name" ""; do
    [ ! -e "$model" ] || break
  done
  [ -n "$model" ] || { echo "skipped: $name is not here (BLEND_DATA_DIR)"; exit 77; }
fi
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
prefix=$work/prefix
"$cmake" --install "$build" --prefix "$prefix" >/dev/null
cd "$work" # no file of the source tree is on any path

case $language in
python)
  package=$(dirname "$(find "$prefix" -path '*/libblend/__init__.py')")
  PYTHONPATH=$(dirname "$package") PYTHONDONTWRITEBYTECODE=1
  export PYTHONPATH PYTHONDONTWRITEBYTECODE
  cp "$examples/python/smallest.py" .
  run() { "$tool" smallest.py "$@"; }
  "$tool" -c 'import libblend.raw; print(open("/proc/self/maps").read())' >maps
  ;;
java)
  jar=$prefix/share/java/libblend.jar
  "$tool" -cp "$jar" -d classes "$examples/java/Smallest.java"
  run() { "$(dirname "$tool")/java" -cp "$jar:classes" Smallest "$@"; }
  ;;
go)
  PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name blend.pc)")
  LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH")
  # Go's cache does not ask whether the library still lies where it lay when the wrapper was compiled.
  LIBRARY_PATH=$LD_LIBRARY_PATH
  export PKG_CONFIG_PATH LD_LIBRARY_PATH LIBRARY_PATH
  mkdir program
  cp "$examples/go/smallest/main.go" program/
  cd program
  "$tool" mod init program 2>/dev/null
  "$tool" mod edit -require libblend.io/go@v0.0.0 -replace "libblend.io/go=$prefix/share/libblend/go"
  "$tool" build -o ../smallest .
  cd ..
  run() { ./smallest "$@"; }
  ;;
esac
# The library is the installed one.
if [ -e maps ]; then
  grep -q "$prefix/.*libblend\.so" maps
  if grep "libblend\.so" maps | grep -v "$prefix"; then exit 1; fi
fi
run "$model" store | tee said
grep -q "square anchor" said
