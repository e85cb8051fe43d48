// Common part of the raw modules of all languages. A language's own file is
//
//   %module(...) raw
//   %{ #include "shim/shim.h" %}
//   %include its own typemaps, which must cover
//      (const int32_t* tokens, size_t n_tokens)   an array of the host, not copied before the call
//      (const float* attention, size_t n_attention)   the same
//      blend_shim::Outcome& out                   left alone (Go), or hidden and raised (Python, Java)
//      const std::string& / std::string           UTF-8, byte for byte
//   %include "common/blend.i"
//
// and SWIG runs with -DSWIGWORDSIZE64 where long has 64 bits. The C++ is compiled with
// -DSWIG_TYPE_TABLE=blend: modules of other projects in the same process must not share our types.
%include <stdint.i>

%feature("director") blend_shim::Listener;

%newobject blend_shim::Context::create;
%newobject blend_shim::Store::open;
%newobject blend_shim::Store::none;
%newobject blend_shim::Model::open;
%newobject blend_shim::Model::create_from_description;
%newobject blend_shim::Profile::open;
%newobject blend_shim::Machine::open;
%newobject blend_shim::Grammar::open;
%newobject blend_shim::CallReader::open;
%newobject blend_shim::Fusion::fuse;
%newobject blend_shim::Fusion::fuse_texts;
%newobject blend_shim::Fusion::fuse_messages;
%newobject blend_shim::Fusion::restore;
%newobject blend_shim::Fusion::fork;
%newobject blend_shim::Fusion::generate;
%newobject blend_shim::Batch::take;
%newobject blend_shim::Layerwise::create;


%include "blend_constants.i"
%include "blend_fields.h"
%include "shim/outcome.h"
%include "shim/view.h"
%include "shim/call.h"
%include "shim/context.h"
%include "shim/store.h"
%include "shim/prompt.h"
%include "shim/text.h"
%include "shim/model.h"
%include "shim/profile.h"
#ifdef SWIGJAVA
// The texts above are bytes there, so that a tokenizer gets what it is given. Those of grammars and answers are strings.
%clear const std::string& text;
#endif
%include "shim/grammar.h"
%include "shim/calls.h"
%include "shim/fusion.h"
%include "shim/layerwise.h"
