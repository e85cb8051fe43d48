// The raw module under the facade (blend); not for users. In a module it is internal/raw.
%module(directors="1") raw

%{
#include "blend_shim.h"
%}

%insert(cgo_comment_typedefs) %{
#cgo pkg-config: blend
#cgo CXXFLAGS: -std=c++17 -w -fno-strict-aliasing -DSWIG_TYPE_TABLE=blend
%}

// ---- Arrays in: a []int32 or []float32, not copied before the call, which does not keep it. A slice of length 0
// may have no memory at all.
%typemap(gotype) (const int32_t* tokens, size_t n_tokens) "[]int32"
%typemap(in) (const int32_t* tokens, size_t n_tokens) %{
  $1 = (int32_t*)$input.array;
  $2 = (size_t)$input.len;
%}

%typemap(gotype) (const float* attention, size_t n_attention) "[]float32"
%typemap(in) (const float* attention, size_t n_attention) %{
  $1 = (float*)$input.array;
  $2 = (size_t)$input.len;
%}

// ---- Addresses of the library's memory. Not uintptr, from which Go must not make pointers again.
%typemap(gotype) const void*, void* "unsafe.Pointer"

// ---- Text: bytes, both ways.
%include <std_string.i>

// `select` is a keyword of Go.
%rename(choose) blend_shim::Layerwise::select;

%include "blend.i"
