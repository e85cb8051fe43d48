// How C++ arguments look from Python.

// ---- Buffers in: (pointer, length) of int32 from anything with a C-contiguous buffer of them. The
// Py_buffer is held until freearg, so that the memory stays while the call runs without the GIL.
%fragment("blend_token_buffer", "header") {
// A new reference's worth of buffer of 4-byte signed integers, or -1 with an exception set.
SWIGINTERN int blend_get_tokens(PyObject* object, Py_buffer* view) {
  if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_SetString(PyExc_TypeError, "tokens must be a C-contiguous buffer of 32-bit integers");
    return -1;
  }
  const char* format = view->format == NULL ? "B" : view->format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const int is_int = (*format == 'i' || (*format == 'l' && view->itemsize == 4)) && format[1] == 0;
  if (!is_int || view->itemsize != 4) {
    PyErr_Format(PyExc_TypeError,
                 "tokens must be 32-bit signed integers (dtype int32), this buffer has format '%s' "
                 "with items of %zd bytes",
                 view->format == NULL ? "B" : view->format, view->itemsize);
    PyBuffer_Release(view);
    return -1;
  }
  return 0;
}
}
%typemap(in, fragment="blend_token_buffer") (const int32_t* tokens, size_t n_tokens)
    (Py_buffer view, int held = 0) {
  if (blend_get_tokens($input, &view) != 0) SWIG_fail;
  held = 1;
  $1 = (int32_t*)view.buf;
  $2 = (size_t)(view.len / 4);
}
%typemap(freearg) (const int32_t* tokens, size_t n_tokens) {
  if (held$argnum) PyBuffer_Release(&view$argnum);
}
%typemap(typecheck, precedence=SWIG_TYPECHECK_INT32_ARRAY) (const int32_t* tokens, size_t n_tokens) {
  $1 = PyObject_CheckBuffer($input) ? 1 : 0;
}

// ---- K and V of a host: writable memory whose owner the facade keeps (a Py_buffer of its own), as
// address and bytes.
%typemap(in) void* k (unsigned long long address), void* v (unsigned long long address) {
  address = PyLong_AsUnsignedLongLong($input);
  if (PyErr_Occurred()) SWIG_fail;
  $1 = (void*)(uintptr_t)address;
}
%typemap(typecheck, precedence=SWIG_TYPECHECK_POINTER) void* k, void* v {
  $1 = PyLong_Check($input);
}
%typemap(out) const void*, void* {
  $result = PyLong_FromVoidPtr((void*)$1);
}

// ---- Errors: every call has an Outcome of its own, which Python does not see; a failure is raised
// by what the facade has set (_set_raise), a callable (code, detail, message) that gives the
// exception. Positive codes have their own results in the shim.
%{
static PyObject* blend_make_error = NULL;  // of the module; set once, under the GIL

static void blend_raise(const blend_shim::Outcome& outcome) {
  const std::string& message = outcome.message();
  if (blend_make_error == NULL) {
    PyErr_Format(PyExc_RuntimeError, "%s (%d)", message.c_str(), (int)outcome.code());
    return;
  }
  PyObject* text = PyUnicode_DecodeUTF8(message.data(), (Py_ssize_t)message.size(), "replace");
  if (text == NULL) return;
  PyObject* error = PyObject_CallFunction(blend_make_error, "iLN", (int)outcome.code(),
                                          (long long)outcome.detail(), text);
  if (error == NULL) return;
  PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_DECREF(error);
}
%}
%typemap(in, numinputs=0) blend_shim::Outcome& out (blend_shim::Outcome outcome) {
  $1 = &outcome;
}
%typemap(argout) blend_shim::Outcome& out {
  if ($1->code() < 0) {
    Py_CLEAR($result);
    // A callback that raised has left its exception with the facade, which prefers it.
    if (!PyErr_Occurred()) blend_raise(*$1);
    SWIG_fail;
  }
}

// ---- Text: str as UTF-8, or bytes; out as str, bytes where the shim says that it may be cut.
%typemap(in, fragment="blend_text") const std::string& (std::string text) {
  if (blend_get_text($input, &text) != 0) SWIG_fail;
  $1 = &text;
}
%typemap(freearg) const std::string& ""
%fragment("blend_text", "header") {
SWIGINTERN int blend_get_text(PyObject* object, std::string* text) {
  if (PyUnicode_Check(object)) {
    PyObject* bytes = PyUnicode_AsEncodedString(object, "utf-8", "surrogateescape");
    if (bytes == NULL) return -1;
    text->assign(PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    return 0;
  }
  if (PyBytes_Check(object)) {
    text->assign(PyBytes_AS_STRING(object), (size_t)PyBytes_GET_SIZE(object));
    return 0;
  }
  PyErr_Format(PyExc_TypeError, "a str or bytes was expected, not %s", Py_TYPE(object)->tp_name);
  return -1;
}
}
%typemap(typecheck, precedence=SWIG_TYPECHECK_STRING) const std::string& {
  $1 = PyUnicode_Check($input) || PyBytes_Check($input);
}
%typemap(out) std::string blend_shim::Model::detokenize, std::string blend_shim::TokenStream::text {
  $result = PyBytes_FromStringAndSize($1.data(), (Py_ssize_t)$1.size());
}
