// The raw module under the facade (blend/*.py); not for users.
%module(package="blend", directors="1", threads="1") raw

%{
#include "shim/shim.h"
%}

%include <std_string.i>
%include "typemaps.i"

// The facade's callable (code, detail, message) -> exception.
%nothread _set_raise;
%inline %{
PyObject* _set_raise(PyObject* make) {
  Py_INCREF(make);
  Py_XSETREF(blend_make_error, make);
  Py_RETURN_NONE;
}
%}

%include "blend.i"
