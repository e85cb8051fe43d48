#!/bin/sh
# Installs to a fresh prefix and builds examples/c against it twice: with find_package(blend) and
# with pkg-config; runs both.
#   install_test.sh CMAKE BUILD_DIR EXAMPLE_DIR CC MAKE_RANDOM_MODEL
set -eu
cmake=$1 build=$2 example=$3 cc=$4 make_model=$5
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
"$cmake" --install "$build" --prefix "$prefix" >/dev/null

echo "== find_package(blend)"
"$cmake" -S "$example" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_BUILD_TYPE=Release >/dev/null
"$cmake" --build "$work/build" >/dev/null
"$here/run_quickstart.sh" "$work/build/quickstart" "$make_model"

echo "== pkg-config"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name blend.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
"$cc" -std=c99 -pedantic -Wall -Wextra -Werror "$example/quickstart.c" -o "$work/quickstart" \
  $(pkg-config --cflags --libs blend) "-Wl,-rpath,$(pkg-config --variable=libdir blend)"
"$here/run_quickstart.sh" "$work/quickstart" "$make_model"

echo "== the installed command and library"
test "$("$prefix/bin/blend" --version)" = "$(pkg-config --modversion blend)"
library=$(pkg-config --variable=libdir blend)/libblend.so
readelf -d "$library" | grep -q 'SONAME.*libblend\.so\.[0-9]'
python3 -B "$here/../abi/hardened.py" "$library" "$prefix/bin/blend"
# Nothing but the public headers is installed.
test "$(cd "$prefix/include" && find . -type f | sort | tr '\n' ' ')" = \
  "$(cd "$here/../../include" && find . -type f | sort | tr '\n' ' ')"
