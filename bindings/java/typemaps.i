// How C++ arguments look from Java.

%pragma(java) moduleclassmodifiers="final class"
%pragma(java) jniclassclassmodifiers="final class"
%pragma(java) jniclasscode=%{
  static {
    NativeLibrary.load();
  }
%}
%typemap(javaclassmodifiers) SWIGTYPE "class"
%typemap(javaclassmodifiers) SWIGTYPE *, SWIGTYPE &, SWIGTYPE [], SWIGTYPE && "class"

%{
#include <new>
#include <string>
#include <vector>
%}
%include <stdint.i>

// ---- Numbers: what C has unsigned is the signed type of the same size. (SWIG would widen uint32_t to
// long, and make uint64_t a BigInteger where long has 32 bits.)
%apply int { uint32_t, unsigned int };
%apply long long { uint64_t, unsigned long, unsigned long long, int64_t, size_t };

%typemap(in, numinputs=0) JNIEnv* "$1 = jenv;"
%typemap(jni) jobject "jobject"
%typemap(jtype) jobject "java.nio.ByteBuffer"
%typemap(jstype) jobject "java.nio.ByteBuffer"
%typemap(out) jobject "$result = $1;"
%typemap(javaout) jobject { return $jnicall; }

// ---- Text: String, as UTF-8 byte for byte. SWIG's std_string.i would pass modified UTF-8. Text that may
// be cut inside a sequence stays bytes.
%{
static bool blend_get_bytes(JNIEnv* jenv, jbyteArray bytes, std::string* text) {
  if (bytes == NULL) {
    SWIG_JavaThrowException(jenv, SWIG_JavaNullPointerException, "text is null");
    return false;
  }
  const jsize n = jenv->GetArrayLength(bytes);
  try {
    text->resize((size_t)n);
  } catch (...) {
    SWIG_JavaThrowException(jenv, SWIG_JavaOutOfMemoryError, "no memory for a text");
    return false;
  }
  if (n > 0) jenv->GetByteArrayRegion(bytes, 0, n, (jbyte*)&(*text)[0]);
  return true;
}
static jbyteArray blend_new_bytes(JNIEnv* jenv, const std::string& text) {
  jbyteArray bytes = jenv->NewByteArray((jsize)text.size());
  if (bytes != NULL && !text.empty()) {
    jenv->SetByteArrayRegion(bytes, 0, (jsize)text.size(), (const jbyte*)text.data());
  }
  return bytes;
}
%}
namespace std {
%naturalvar string;
class string;
%typemap(jni) string, const string& "jbyteArray"
%typemap(jtype) string, const string& "byte[]"
%typemap(jstype) string, const string& "String"
%typemap(javain) string, const string& "Text.bytes($javainput)"
%typemap(javaout) string, const string& { return Text.of($jnicall); }
%typemap(in) string %{ if (!blend_get_bytes(jenv, $input, &$1)) return $null; %}
%typemap(in) const string& (std::string text) %{
  if (!blend_get_bytes(jenv, $input, &text)) return $null;
  $1 = &text;
%}
%typemap(out) string %{ $result = blend_new_bytes(jenv, $1); %}
%typemap(out) const string& %{ $result = blend_new_bytes(jenv, *$1); %}
%typemap(typecheck) string, const string& ""
}
// Bytes in too: a text that came as bytes is not decoded first.
%typemap(jstype) const std::string& text "byte[]"
%typemap(javain) const std::string& text "$javainput"
%typemap(jstype) std::string blend_shim::Model::detokenize "byte[]"
%typemap(javaout) std::string blend_shim::Model::detokenize { return $jnicall; }

// ---- Tokens in: an int[], copied, or a direct IntBuffer in native order, not copied, of which all of
// the capacity counts: Tokens.of() makes it of position and limit.
%{
struct blend_tokens {
  std::vector<int32_t> copy;
  const int32_t* data;
  size_t n;
};
static bool blend_get_tokens(JNIEnv* jenv, jobject object, blend_tokens* tokens) {
  if (object == NULL) {
    SWIG_JavaThrowException(jenv, SWIG_JavaNullPointerException, "tokens are null");
    return false;
  }
  void* address = jenv->GetDirectBufferAddress(object);
  if (address != NULL) {
    tokens->data = (const int32_t*)address;
    tokens->n = (size_t)jenv->GetDirectBufferCapacity(object);
    return true;
  }
  // What Tokens.of() gives is nothing else: an int[].
  jintArray array = (jintArray)object;
  const jsize n = jenv->GetArrayLength(array);
  try {
    tokens->copy.resize((size_t)n);
  } catch (...) {
    SWIG_JavaThrowException(jenv, SWIG_JavaOutOfMemoryError, "no memory for tokens");
    return false;
  }
  if (n > 0) jenv->GetIntArrayRegion(array, 0, n, (jint*)tokens->copy.data());
  tokens->data = tokens->copy.data();
  tokens->n = (size_t)n;
  return true;
}
%}
%typemap(jni) (const int32_t* tokens, size_t n_tokens) "jobject"
%typemap(jtype) (const int32_t* tokens, size_t n_tokens) "Object"
%typemap(jstype) (const int32_t* tokens, size_t n_tokens) "Object"
%typemap(javain) (const int32_t* tokens, size_t n_tokens) "$javainput"
%typemap(in) (const int32_t* tokens, size_t n_tokens) (blend_tokens held) %{
  if (!blend_get_tokens(jenv, $input, &held)) return $null;
  $1 = (int32_t*)held.data;
  $2 = held.n;
%}

// ---- Floats in: a float[], copied.
%{
static bool blend_get_floats(JNIEnv* jenv, jfloatArray array, std::vector<float>* floats) {
  if (array == NULL) {
    SWIG_JavaThrowException(jenv, SWIG_JavaNullPointerException, "an array is null");
    return false;
  }
  const jsize n = jenv->GetArrayLength(array);
  try {
    floats->resize((size_t)n);
  } catch (...) {
    SWIG_JavaThrowException(jenv, SWIG_JavaOutOfMemoryError, "no memory for an array");
    return false;
  }
  if (n > 0) jenv->GetFloatArrayRegion(array, 0, n, floats->data());
  return true;
}
%}
%typemap(jni) (const float* attention, size_t n_attention) "jfloatArray"
%typemap(jtype) (const float* attention, size_t n_attention) "float[]"
%typemap(jstype) (const float* attention, size_t n_attention) "float[]"
%typemap(javain) (const float* attention, size_t n_attention) "$javainput"
%typemap(in) (const float* attention, size_t n_attention) (std::vector<float> held) %{
  if (!blend_get_floats(jenv, $input, &held)) return $null;
  $1 = held.data();
  $2 = held.size();
%}

// ---- K and V of the host: a direct ByteBuffer from its address over all of its capacity.
%typemap(jni) (void* k, size_t k_bytes), (void* v, size_t v_bytes) "jobject"
%typemap(jtype) (void* k, size_t k_bytes), (void* v, size_t v_bytes) "java.nio.ByteBuffer"
%typemap(jstype) (void* k, size_t k_bytes), (void* v, size_t v_bytes) "java.nio.ByteBuffer"
%typemap(javain) (void* k, size_t k_bytes), (void* v, size_t v_bytes) "$javainput"
%typemap(in) (void* k, size_t k_bytes), (void* v, size_t v_bytes) %{
  $1 = $input == NULL ? NULL : jenv->GetDirectBufferAddress($input);
  $2 = $1 == NULL ? 0 : (size_t)jenv->GetDirectBufferCapacity($input);
%}

// ---- Errors: every call has an Outcome of its own, which Java does not see; a failure is thrown as the
// exception of its code, by RawErrors.make. A call without one finds the outcome that never fails, below:
// %exception, unlike argout, comes before a result is copied, so none is left behind.
%{
static const blend_shim::Outcome blend_outcome;

static void blend_throw(JNIEnv* jenv, const blend_shim::Outcome& outcome) {
  if (jenv->ExceptionCheck()) return;
  jclass errors = jenv->FindClass("io/libblend/RawErrors");
  if (errors == NULL) return;
  jmethodID make = jenv->GetStaticMethodID(errors, "make", "(IJ[B)Ljava/lang/RuntimeException;");
  if (make == NULL) return;
  jbyteArray message = blend_new_bytes(jenv, outcome.message());
  if (message == NULL) return;
  jthrowable error = (jthrowable)jenv->CallStaticObjectMethod(
      errors, make, (jint)outcome.code(), (jlong)outcome.detail(), message);
  if (jenv->ExceptionCheck() || error == NULL) return;
  jenv->Throw(error);
}
%}
%typemap(arginit) blend_shim::Outcome& out "blend_shim::Outcome blend_outcome;"
%typemap(in, numinputs=0) blend_shim::Outcome& out "$1 = &blend_outcome;"
%exception {
  $action
  if (blend_outcome.code() < 0) {
    blend_throw(jenv, blend_outcome);
    return $null;
  }
}
%ignore blend_shim::Outcome;
