// C++ objects are destroyed by a Cleaner, once the raw object that owns one is unreachable, or by delete()
// before. JNI keeps the raw objects that a call was given reachable while it runs, so nothing is
// destroyed under a call. Objects of subclasses of ours (directors) are deleted by the facade alone.
%typemap(javafinalize) SWIGTYPE ""


%typemap(javabody) SWIGTYPE %{
  private transient long swigCPtr;
  protected transient boolean swigCMemOwn;
  transient java.lang.ref.Cleaner.Cleanable cleanable;

  $javaclassname(long cPtr, boolean cMemoryOwn) {
    swigCMemOwn = cMemoryOwn;
    swigCPtr = cPtr;
    if (cMemoryOwn && getClass() == $javaclassname.class) {
      cleanable = NativeMemory.register(this, cPtr, $imclassname::delete_$javaclassname);
    }
  }

  static long getCPtr($javaclassname obj) {
    return obj == null ? 0 : obj.swigCPtr;
  }
%}
%typemap(javabody_derived) SWIGTYPE %{
  private transient long swigCPtr;

  $javaclassname(long cPtr, boolean cMemoryOwn) {
    super($imclassname.$javaclazznameSWIGUpcast(cPtr), cMemoryOwn);
    swigCPtr = cPtr;
    if (cMemoryOwn && getClass() == $javaclassname.class) {
      cleanable = NativeMemory.register(this, cPtr, $imclassname::delete_$javaclassname);
    }
  }

  static long getCPtr($javaclassname obj) {
    return obj == null ? 0 : obj.swigCPtr;
  }
%}
%typemap(javadestruct, methodname="delete", methodmodifiers="synchronized", parameters="") SWIGTYPE {
    if (cleanable != null) {
      cleanable.clean();
    } else if (swigCMemOwn && swigCPtr != 0) {
      $jnicall;
    }
    swigCMemOwn = false;
    swigCPtr = 0;
  }
%typemap(javadestruct_derived, methodname="delete", methodmodifiers="synchronized", parameters="") SWIGTYPE {
    if (cleanable != null) {
      cleanable.clean();
    } else if (swigCMemOwn && swigCPtr != 0) {
      $jnicall;
    }
    swigCMemOwn = false;
    swigCPtr = 0;
    super.delete();
  }
