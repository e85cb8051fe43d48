# shellcheck shell=bash
# Sourced by tests/device/run and bench/device/run: finds the GPU, the programs and their libraries.
# Sets `programs`, the folder that holds them; returns 77, with the reason printed, where there is
# nothing to run on.

device_reason() { # why there is no GPU to run on; empty where there is one
  local list
  if ! command -v nvidia-smi >/dev/null; then
    echo "no nvidia-smi: this machine has no NVIDIA driver"
  elif ! list=$(nvidia-smi -L 2>&1) || ! grep -q '^GPU ' <<<"$list"; then
    echo "nvidia-smi shows no GPU: ${list%%$'\n'*}"
  fi
}

# Where libblend_cuda.so would not find cuBLASLt by itself: the folder of libcublasLt.so.13, else of .12.
# Empty where the loader has one.
find_cublas() {
  local v d found
  for v in 13 12; do
    ldconfig -p 2>/dev/null | grep -q "libcublasLt\.so\.$v " && return
    for d in ${LD_LIBRARY_PATH//:/ }; do [ -e "$d/libcublasLt.so.$v" ] && return; done
    for d in /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/local/cuda-"$v"*/lib64; do
      [ -e "$d/libcublasLt.so.$v" ] && echo "$d" && return
    done
    # PyTorch's wheels bring it.
    found=$(python3 - "$v" <<'PY' 2>/dev/null
import glob, site, sys
roots = set(site.getsitepackages() + [p for p in sys.path if p.endswith("site-packages")])
found = [f for r in sorted(roots)
         for f in glob.glob(r + "/nvidia/**/libcublasLt.so." + sys.argv[1], recursive=True)]
print(found[0].rsplit("/", 1)[0]) if found else sys.exit(1)
PY
) && echo "$found" && return
  done
  return 1
}

find_programs() { # a folder with device_backend_test, device_fusion_test and bench_device
  local root=$1 build=${BLEND_BUILD:-}
  for b in ${build:+"$build"} "$root/build/release"; do
    if [ -x "$b/tests/device_backend_test" ] && [ -e "$b/src/capi/libblend_cuda.so" ]; then
      mkdir -p "$b/device"
      ln -sf "$(realpath "$b")"/tests/device_*_test "$b/device/"
      [ ! -x "$b/bench/bench_device" ] || ln -sf "$(realpath "$b/bench/bench_device")" "$b/device/"
      BLEND_CUDA_MODULE=$(realpath "$b/src/capi/libblend_cuda.so")
      export BLEND_CUDA_MODULE
      programs=$b/device
      return
    fi
  done
  local bundle=${BLEND_BUNDLE:-$root/device-bundle.tar.xz}
  if [ -e "$bundle" ]; then
    programs=$(mktemp -d) && tar -C "$programs" -xf "$bundle" || return 1
    export LD_LIBRARY_PATH=$programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export BLEND_CUDA_MODULE=$programs/lib/libblend_cuda.so
    return
  fi
  echo "no programs: build with nvcc in reach (cmake --preset release && cmake --build --preset" \
    "release; scripts/setup names the libraries), or make a bundle where that can be done" \
    "(tests/device/pack) and put it at $bundle or name it in BLEND_BUNDLE"
  return 1
}

# Sets device_library_path_before, LD_LIBRARY_PATH as it was, for programs that are not ours.
device_environment() { # device_environment ROOT
  local reason cublas
  # shellcheck disable=SC2034  # by bench/device/run
  device_library_path_before=${LD_LIBRARY_PATH:-}
  if [ "${BLEND_DEVICE:-}" = emulated ]; then
    find_programs "$1" || return 1
    BLEND_CUDA_MODULE=$(realpath "$programs/../tests/libblend_cuda_emulated_module.so") || return 1
    export BLEND_CUDA_MODULE
    echo "programs in $programs, on the emulated device"
    return
  fi
  reason=$(device_reason)
  if [ -n "$reason" ]; then
    echo "SKIPPED: $reason"
    return 77
  fi
  nvidia-smi -L
  nvidia-smi --query-gpu=driver_version,memory.total --format=csv,noheader
  find_programs "$1" || return 1
  if ! cublas=$(find_cublas); then
    echo "libcublasLt.so.13 and .12 are nowhere: install the CUDA libraries, or put their folder into LD_LIBRARY_PATH"
    return 1
  fi
  # After the host's own entries.
  [ -z "$cublas" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cublas
  echo "programs in $programs, cuBLASLt ${cublas:-where the loader finds it}"
}
