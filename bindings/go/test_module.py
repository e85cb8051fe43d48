"""The packaged module in a folder of its own builds and runs a program.

    test_module.py MODULE.zip GO LIBBLEND.so BLEND.pc SOURCE_TREE MODEL.gguf

The library is what would be installed of it for that: libblend.so and blend.pc, no headers. No SWIG is
on the path, and no file of the module names the source tree.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

PROGRAM = """package main

import (
	"context"
	"fmt"
	"os"

	"libblend.io/go/blend"
)

func main() {
	c, err := blend.NewContext(&blend.ContextOptions{Threads: 1})
	check(err)
	model, err := blend.OpenModel(context.Background(), c, os.Args[1], &blend.ModelOptions{MaxContext: 64})
	check(err)
	info, err := model.Info()
	check(err)
	tokens, err := model.Tokenize("a word", blend.TokenizeBOS)
	check(err)
	fusion, err := model.Fuse(context.Background(), nil, blend.Prompt{blend.Question(tokens)},
		&blend.FuseOptions{Policy: blend.PolicyFull, ReserveTokens: 4})
	check(err)
	end, err := fusion.Generate(context.Background(), &blend.GenerateOptions{MaxTokens: 2, IgnoreEOS: true}, nil)
	check(err)
	_, err = blend.OpenModel(context.Background(), c, "/nowhere", nil)
	fmt.Println(blend.Version(), info.ContextLength, end.Tokens, err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
"""
TOOLS = ("go", "gcc", "g++", "as", "ld", "pkg-config")


def main(package, go, library, pc, source_tree, model):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        zipfile.ZipFile(package).extractall(folder)
        module = folder / pathlib.Path(package).stem
        for path in module.rglob("*"):
            assert not path.is_file() or source_tree not in path.read_text(), f"{path} names {source_tree}"

        installed = re.search(r"^libdir=\$\{prefix\}/(.*)$", pathlib.Path(pc).read_text(), re.M)[1]
        # Go's cache remembers where the library was when the wrapper was compiled, perhaps for another test: hence
        # LIBRARY_PATH, and a place that stays.
        prefix = pathlib.Path(package).parent / "prefix"
        shutil.rmtree(prefix, ignore_errors=True)
        lib = prefix / installed
        (lib / "pkgconfig").mkdir(parents=True)
        shutil.copy(pc, lib / "pkgconfig")
        for path in pathlib.Path(library).parent.glob("libblend.so*"):
            shutil.copy(path, lib, follow_symlinks=False)
        tools = folder / "tools"
        tools.mkdir()
        for tool in TOOLS:
            (tools / tool).symlink_to(go if tool == "go" else shutil.which(tool))
        environment = {**os.environ, "PATH": str(tools), "PKG_CONFIG_PATH": str(lib / "pkgconfig"),
                       "LD_LIBRARY_PATH": str(lib), "LIBRARY_PATH": str(lib)}
        assert shutil.which("swig", path=environment["PATH"]) is None

        program = folder / "program"
        program.mkdir()
        (program / "main.go").write_text(PROGRAM)

        def run(*command):
            return subprocess.run(command, cwd=program, env=environment, check=True, capture_output=True, text=True)

        try:
            run(go, "mod", "init", "program")
            run(go, "mod", "edit", "-require", "libblend.io/go@v0.0.0", "-replace", f"libblend.io/go={module}")
            # -trimpath: what Go has built before is the same in another temporary folder.
            run(go, "build", "-trimpath", "-o", "program", ".")
            said = run("./program", model).stdout
        except subprocess.CalledProcessError as error:
            sys.exit(f"{error}\n{error.stderr}")
        print(said)
        version, context, generated, refused = said.split(None, 3)
        wanted = pathlib.Path(pc).read_text().split("Version:")[1].split()[0]
        assert (version, context, generated) == (wanted, "64", "2"), said
        assert "(ErrNotFound)" in refused, said


main(*sys.argv[1:])
