// The raw module under the facade (libblend/*.py); not for users.
//
// Calls that compute, wait or touch the disk release the interpreter's lock. Those that only read a
// number keep it: taking it again costs time while other threads run.
%module(package="libblend", directors="1", threads="1") raw

%{
#include "shim/shim.h"
#include "watch.h"

// SWIG's own are objects whose destructor takes the lock. Where the interpreter is going away, taking
// it ends the thread by unwinding its stack, which no destructor may begin.
#undef SWIG_PYTHON_THREAD_BEGIN_ALLOW
#undef SWIG_PYTHON_THREAD_END_ALLOW
#define SWIG_PYTHON_THREAD_BEGIN_ALLOW PyThreadState* blend_saved = PyEval_SaveThread()
#define SWIG_PYTHON_THREAD_END_ALLOW PyEval_RestoreThread(blend_saved)
%}

%include <std_string.i>
%include "typemaps.i"

%nothreadallow;
%threadallow blend_shim::Context::create;
%threadallow blend_shim::Context::close;
%threadallow blend_shim::Context::~Context;
%threadallow blend_shim::LogQueue::next;
%threadallow blend_shim::Model::open;
%threadallow blend_shim::Model::create_from_description;
%threadallow blend_shim::Model::tokenize;
%threadallow blend_shim::Model::detokenize;
%threadallow blend_shim::Model::embed;
%threadallow blend_shim::Model::chat;
%threadallow blend_shim::Model::chat_text;
%threadallow blend_shim::Model::precompute;
%threadallow blend_shim::Model::precompute_corpus;
%threadallow blend_shim::Model::text_prompt;
%threadallow blend_shim::Model::precompute_texts;
%threadallow blend_shim::Model::find_chunk;
%threadallow blend_shim::Model::put_chunk;
%threadallow blend_shim::Model::close;
%threadallow blend_shim::Model::~Model;
%threadallow blend_shim::Store::open;
%threadallow blend_shim::Store::flush;
%threadallow blend_shim::Store::list;
%threadallow blend_shim::Store::remove;
%threadallow blend_shim::Store::remove_matching;
%threadallow blend_shim::Store::set_label;
%threadallow blend_shim::Store::wait;
%threadallow blend_shim::Store::prefetch;
%threadallow blend_shim::Store::set_pinned;
%threadallow blend_shim::Store::evict;
%threadallow blend_shim::Store::set_tenant_quota;
%threadallow blend_shim::Store::tenant_usage;
%threadallow blend_shim::Store::repair;
%threadallow blend_shim::Store::copy;
%threadallow blend_shim::Store::export_to;
%threadallow blend_shim::Store::import_from;
%threadallow blend_shim::Store::remote_check;
%threadallow blend_shim::Store::remote_push;
%threadallow blend_shim::Store::remote_pull;
%threadallow blend_shim::Store::remote_verify;
%threadallow blend_shim::Store::remote_remove;
%threadallow blend_shim::Store::compact;
%threadallow blend_shim::Store::list_metrics;
%threadallow blend_shim::Store::metrics;
%threadallow blend_shim::Store::stat;
%threadallow blend_shim::Store::codec_stat;
%threadallow blend_shim::Store::close;
%threadallow blend_shim::Store::~Store;
%threadallow blend_shim::Profile::open;
%threadallow blend_shim::Profile::calibrate;
%threadallow blend_shim::Profile::verify;
%threadallow blend_shim::Machine::open;
%threadallow blend_shim::Grammar::open;
%threadallow blend_shim::CallReader::open;
%threadallow blend_shim::Fusion::fuse;
%threadallow blend_shim::Fusion::fuse_texts;
%threadallow blend_shim::Fusion::fuse_messages;
%threadallow blend_shim::Fusion::extend;
%threadallow blend_shim::Fusion::fork;
%threadallow blend_shim::Fusion::close;
%threadallow blend_shim::Fusion::~Fusion;
%threadallow blend_shim::TokenStream::next;
%threadallow blend_shim::TokenStream::close;
%threadallow blend_shim::TokenStream::~TokenStream;
%threadallow blend_shim::Batch::fuse;
%threadallow blend_shim::Layerwise::create;
%threadallow blend_shim::Layerwise::restart;
%threadallow blend_shim::Layerwise::synchronize;
%threadallow blend_shim::Layerwise::probe;
%threadallow blend_shim::Layerwise::select;
%threadallow blend_shim::Layerwise::commit;
%threadallow blend_shim::Layerwise::close;
%threadallow blend_shim::Layerwise::~Layerwise;

// Calls without callbacks that may take long: see interruptible().
%define BLEND_INTERRUPTIBLE(method, cancel, is_long)
%exception method {
  if (!blend_python::interruptible(*cancel, is_long, [&] { $action })) SWIG_fail;
}
%enddef
// A few tokens take no longer than a check for signals.
BLEND_INTERRUPTIBLE(blend_shim::Fusion::decode, arg4, arg3 > 8)
BLEND_INTERRUPTIBLE(blend_shim::Fusion::make_exact, arg4, true)
BLEND_INTERRUPTIBLE(blend_shim::Fusion::replace, arg6, true)
BLEND_INTERRUPTIBLE(blend_shim::Fusion::erase, arg4, true)
BLEND_INTERRUPTIBLE(blend_shim::Fusion::save, arg4, true)
%exception blend_shim::Fusion::restore {
  if (!blend_python::interruptible(*arg6, true, [&] { $action })) {
    delete result;
    SWIG_fail;
  }
}

%inline %{
// The facade's callable (code, detail, message) -> exception.
PyObject* _set_raise(PyObject* make) {
  PyObject* before = blend_make_error;
  Py_INCREF(make);
  blend_make_error = make;
  Py_XDECREF(before);
  Py_RETURN_NONE;
}
void _close_entrance() { blend_python::entrance.close(); }
void _set_main_thread(unsigned long ident) { blend_python::main_thread = ident; }
%}

%include "blend.i"

namespace blend_python {
%exception Watch::raise_kept {
  $action
  if (PyErr_Occurred()) SWIG_fail;
}
class Watch : public blend_shim::Listener {
 public:
  explicit Watch(int poll_ms);
  void set_inner(blend_shim::Listener* inner, bool tells_progress);
  void raise_kept();
};
}

// Fusion::fuse with a Watch around it, in one call: in a fuse of few rows every call between the languages
// can be measured. `inner` may be null.
%newobject fuse_watched;
%inline %{
blend_shim::Fusion* fuse_watched(const blend_shim::Model& model, const blend_shim::Store& store,
                                 const blend_shim::Prompt& prompt, blend_shim::FuseOptions& options,
                                 blend_shim::Listener* inner, bool tells_progress, int poll_ms,
                                 blend_shim::Outcome& out) {
  blend_python::Watch watch(poll_ms);
  watch.set_inner(inner, tells_progress);
  options.set_listener(&watch);
  PyThreadState* saved = PyEval_SaveThread();
  blend_shim::Fusion* made = blend_shim::Fusion::fuse(model, store, prompt, options, out);
  PyEval_RestoreThread(saved);
  options.set_listener(NULL);
  watch.raise_kept();
  return made;
}
%}
