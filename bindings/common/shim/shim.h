// The whole shim, for SWIG (bindings/common/blend.i) and for nobody else.
#ifndef BLEND_SHIM_SHIM_H
#define BLEND_SHIM_SHIM_H

#include "blend_fields.h"
#include "call.h"
#include "calls.h"
#include "context.h"
#include "fusion.h"
#include "grammar.h"
#include "layerwise.h"
#include "model.h"
#include "outcome.h"
#include "profile.h"
#include "prompt.h"
#include "store.h"
#include "text.h"
#include "view.h"

#endif
