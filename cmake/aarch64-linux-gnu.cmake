# Builds for 64-bit Arm on another machine of Debian's, with its cross compiler and the libraries of
# its arm64 packages (scripts/setup aarch64); tests run in qemu's user mode.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# Debian keeps the libraries of every architecture below one root, by the compiler's triplet, where
# CMake looks for them by itself. pkg-config has to be told.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)

# The loader and libc are arm64's own packages, so qemu needs no -L. Its processor has everything
# that it knows: NEON, SVE, dot products and matrix products of bytes.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
