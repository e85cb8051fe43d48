// blend.hpp - C++17 over blend.h: header-only, RAII, exceptions instead of codes.
//
// Everything is in namespace `blendpp`, so that it cannot meet names that the library or its
// bindings use. A handle closes itself; handles may go out of scope in any order (blend.h,
// "Lifetime"). Option and info structs derive from the C structs and are initialised on
// construction, so every member documented in blend.h is there under the same name.
//
//   blendpp::Context ctx;
//   blendpp::Model model(ctx, "model.gguf");
//   blendpp::Store store(ctx, "store");
//   blendpp::Fusion fusion(model, &store, {"A document.", "Another."}, "Who signs?");
//   fusion.generate({}, [](int32_t, std::string_view text) { std::cout << text; return true; });
//
// The parts are in blend/cpp: a header for each thing that a program makes (context, model, store,
// fusion, ...), which may be included by itself.
//
// Threads: as in blend.h. A const member function may run concurrently with any other on the same
// object; the others need exclusive use.
//
// Errors: a failed call throws blendpp::Error. An exception that leaves a callback never crosses
// the C boundary: it stops the call and is thrown again from it, unchanged. A progress callback
// that returns false stops the call with an Error of code BLEND_E_CALLBACK.
#ifndef BLEND_BLEND_HPP
#define BLEND_BLEND_HPP

// The whole surface, FuseOptions::selection included.
#ifndef BLEND_EXPERIMENTAL
#define BLEND_EXPERIMENTAL
#endif
#include "blend/blend.h"
#include "blend/cpp/batch.hpp"
#include "blend/cpp/calls.hpp"
#include "blend/cpp/chat.hpp"
#include "blend/cpp/context.hpp"
#include "blend/cpp/error.hpp"
#include "blend/cpp/fuse.hpp"
#include "blend/cpp/fusion.hpp"
#include "blend/cpp/generate.hpp"
#include "blend/cpp/grammar.hpp"
#include "blend/cpp/machine.hpp"
#include "blend/cpp/model.hpp"
#include "blend/cpp/profile.hpp"
#include "blend/cpp/prompt.hpp"
#include "blend/cpp/step.hpp"
#include "blend/cpp/store.hpp"
#include "blend/cpp/types.hpp"

#endif
