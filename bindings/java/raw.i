// The raw module under the facade (src/io/libblend): package-private classes Raw*, in the facade's own
// package so that nothing of it is public.
%module(directors="1") Raw

%{
#include "shim/shim.h"
%}

%rename("Raw%s", %$isclass) "";
%rename("%(lowercamelcase)s", %$isfunction, %$not %$isconstructor, %$not %$isdestructor) "";
%rename("%(lowercamelcase)s", %$isvariable) "";

%include "typemaps.i"
%include "lifetime.i"

%copyctor blend_shim::ContextOptions;
%copyctor blend_shim::ModelOptions;
%copyctor blend_shim::PrecomputeOptions;
%copyctor blend_shim::CorpusOptions;
%copyctor blend_shim::EmbedOptions;
%copyctor blend_shim::FuseOptions;
%copyctor blend_shim::GenerateOptions;
%copyctor blend_shim::CalibrateOptions;
%copyctor blend_shim::VerifyOptions;
%copyctor blend_shim::MachineOptions;
%copyctor blend_shim::GrammarOptions;
%copyctor blend_shim::TransferOptions;

// Not null where the host's memory is: a direct buffer over `bytes` bytes at `address`.
%{
static jobject blend_buffer(JNIEnv* jenv, const void* address, size_t bytes) {
  static char nothing[1];
  return jenv->NewDirectByteBuffer(bytes == 0 ? nothing : const_cast<void*>(address), (jlong)bytes);
}
%}
%ignore blend_shim::View::data;
%ignore blend_shim::TokenStream::logits;
%ignore blend_shim::Scoring::rows;
%ignore blend_shim::Scoring::deviation;
%ignore blend_shim::Scoring::scores;
%extend blend_shim::View {
  jobject buffer(JNIEnv* jenv) const { return blend_buffer(jenv, $self->data(), 4 * $self->size()); }
}
%extend blend_shim::TokenStream {
  jobject logits_buffer(JNIEnv* jenv) { return blend_buffer(jenv, $self->logits(), 4 * $self->n_logits()); }
}
%extend blend_shim::Scoring {
  jobject rows_buffer(JNIEnv* jenv) const { return blend_buffer(jenv, $self->rows(), 4 * $self->size()); }
  jobject deviation_buffer(JNIEnv* jenv) const { return blend_buffer(jenv, $self->deviation(), 4 * $self->size()); }
  jobject scores_buffer(JNIEnv* jenv) const { return blend_buffer(jenv, $self->scores(), 4 * $self->size()); }
}

%include "blend.i"
