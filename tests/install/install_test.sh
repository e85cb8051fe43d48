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

echo "== the smallest programs"
examples=$here/../../examples
# shellcheck disable=SC2046
"$cc" -std=c99 -pedantic -Wall -Wextra -Werror "$examples/c/smallest.c" -o "$work/smallest_c" \
  $(pkg-config --cflags --libs blend) "-Wl,-rpath,$(pkg-config --variable=libdir blend)"
# shellcheck disable=SC2046
c++ -std=c++17 -pedantic -Wall -Wextra -Werror "$examples/cpp/smallest.cpp" -o "$work/smallest_cpp" \
  $(pkg-config --cflags --libs blend) "-Wl,-rpath,$(pkg-config --variable=libdir blend)"
for program in "$work/build/smallest" "$work/smallest_c" "$work/smallest_cpp"; do
  "$program" "$examples/models/blend-qa.gguf" "$work/smallest" | grep "square anchor"
done
wc -l "$examples"/*/smallest.* "$examples/java/Smallest.java" "$examples/go/smallest/main.go" |
  awk '$2 != "total" && $1 > 30 { print "not the smallest:", $0; exit 1 }'

echo "== the installed command and library"
test "$("$prefix/bin/blend" --version)" = "$(pkg-config --modversion blend)"
test -s "$prefix/share/man/man1/blend-ask.1.gz"
test -s "$prefix/share/bash-completion/completions/blend"
library=$(pkg-config --variable=libdir blend)/libblend.so
readelf -d "$library" | grep -q 'SONAME.*libblend\.so\.[0-9]'
python3 -B "$here/../abi/hardened.py" "$library" "$prefix/bin/blend"
# Nothing but the public headers is installed.
test "$(cd "$prefix/include" && find . -type f | sort | tr '\n' ' ')" = \
  "$(cd "$here/../../include" && find . -type f | sort | tr '\n' ' ')"

echo "== one version, wherever it is read from"
python3 -B - "$here/../.." "$library" "$(pkg-config --modversion blend)" <<'END'
import ctypes, pathlib, re, subprocess, sys
tree, library, installed = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
loaded = ctypes.CDLL(library)
loaded.blend_version.restype = ctypes.c_char_p
said = {"blend_version()": loaded.blend_version().decode()}
cmake = (tree / "CMakeLists.txt").read_text()
python = re.search(r"^regex = '(.*)'$", (tree / "pyproject.toml").read_text(), re.M)[1]
said["the wheel's"] = re.search(python, cmake)["value"]
command = re.search(r"^version=\$\((sed .* CMakeLists.txt)\)$", (tree / "scripts/package").read_text(), re.M)[1]
said["scripts/package"] = subprocess.run(command, shell=True, cwd=tree, capture_output=True, text=True).stdout.strip()
wrong = {name: version for name, version in said.items() if version != installed}
sys.exit(f"blend.pc says {installed}, others {wrong}" if wrong else 0)
END
