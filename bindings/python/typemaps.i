// How C++ arguments look from Python. Only functions of its limited API, as of 3.9: wheels are built
// for the stable ABI.

// ---- Arrays in: (pointer, length) of int32 tokens or of floats. The facade gives (address, length, owner), a tuple that
// keeps the memory's owner until the call has returned. Py_buffer would do the same here, but is in the
// stable ABI from Python 3.11 on only.
%fragment("blend_array", "header") {
SWIGINTERN int blend_get_array(PyObject* object, const void** values, size_t* n) {
  if (!PyTuple_Check(object) || PyTuple_Size(object) != 3) {
    PyErr_SetString(PyExc_TypeError, "an array is (address, length, owner)");
    return -1;
  }
  *values = PyLong_AsVoidPtr(PyTuple_GetItem(object, 0));
  *n = PyLong_AsSize_t(PyTuple_GetItem(object, 1));
  return PyErr_Occurred() == NULL ? 0 : -1;
}
}
%typemap(in, fragment="blend_array") (const int32_t* tokens, size_t n_tokens),
                                     (const float* attention, size_t n_attention) {
  if (blend_get_array($input, (const void**)&$1, &$2) != 0) SWIG_fail;
}
%typemap(typecheck, precedence=SWIG_TYPECHECK_INT32_ARRAY) (const int32_t* tokens, size_t n_tokens),
                                                           (const float* attention, size_t n_attention) {
  $1 = PyTuple_Check($input) ? 1 : 0;
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
  PyObject* type = PyObject_Type(error);
  PyErr_SetObject(type, error);
  Py_XDECREF(type);
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

// ---- Numbers: an error about one that does not fit names its option, not SWIG's and C's names. An object
// with an __index__ is a whole number.
%fragment("blend_number", "header") {
// The member in SWIG's Options_member_set, by the facade's name.
SWIGINTERN void blend_name_of(const char* function, char name[64]) {
  const char* begin = strchr(function, '_');
  begin = begin == NULL ? function : begin + 1;
  if (strncmp(begin, "n_threads", 9) == 0 || strncmp(begin, "n_contexts", 10) == 0) begin += 2;
  size_t n = strlen(begin);
  if (n > 4 && strcmp(begin + n - 4, "_set") == 0) n -= 4;
  if (n > 63) n = 63;
  memcpy(name, begin, n);
  name[n] = '\0';
}
SWIGINTERN int blend_get_unsigned(PyObject* object, const char* function, unsigned long long most,
                                  unsigned long long* value) {
  char name[64];
  PyObject* whole = PyNumber_Index(object);
  if (whole == NULL) {
    PyErr_Clear();
    blend_name_of(function, name);
    PyErr_Format(PyExc_TypeError, "%s must be a whole number, not %R", name, object);
    return -1;
  }
  *value = PyLong_AsUnsignedLongLong(whole);
  Py_DECREF(whole);
  if (PyErr_Occurred() == NULL && *value <= most) return 0;
  PyErr_Clear();
  blend_name_of(function, name);
  PyErr_Format(PyExc_ValueError, "%s must be from 0 to %llu, not %R", name, most, object);
  return -1;
}
SWIGINTERN int blend_get_double(PyObject* object, const char* function, double* value) {
  char name[64];
  *value = PyFloat_AsDouble(object);
  if (PyErr_Occurred() == NULL) return 0;
  PyErr_Clear();
  blend_name_of(function, name);
  PyErr_Format(PyExc_TypeError, "%s must be a number, not %R", name, object);
  return -1;
}
}
%typemap(in, fragment="blend_number") uint32_t (unsigned long long value) {
  if (blend_get_unsigned($input, "$symname", UINT32_MAX, &value) != 0) SWIG_fail;
  $1 = (uint32_t)value;
}
%typemap(in, fragment="blend_number") uint64_t (unsigned long long value),
                                         size_t (unsigned long long value) {
  if (blend_get_unsigned($input, "$symname", UINT64_MAX, &value) != 0) SWIG_fail;
  $1 = ($1_ltype)value;
}
%typemap(in, fragment="blend_number") float (double value), double (double value) {
  if (blend_get_double($input, "$symname", &value) != 0) SWIG_fail;
  $1 = ($1_ltype)value;
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
    text->assign(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
    Py_DECREF(bytes);
    return 0;
  }
  if (PyBytes_Check(object)) {
    text->assign(PyBytes_AsString(object), (size_t)PyBytes_Size(object));
    return 0;
  }
  PyErr_Format(PyExc_TypeError, "a str or bytes was expected, not %R", (PyObject*)Py_TYPE(object));
  return -1;
}
}
%typemap(typecheck, precedence=SWIG_TYPECHECK_STRING) const std::string& {
  $1 = PyUnicode_Check($input) || PyBytes_Check($input);
}
%typemap(out) std::string blend_shim::Model::detokenize, std::string blend_shim::TokenStream::text {
  $result = PyBytes_FromStringAndSize($1.data(), (Py_ssize_t)$1.size());
}
