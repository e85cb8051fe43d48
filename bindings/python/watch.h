// What Python needs in C++: signals, and calls without the interpreter's lock.
#ifndef BLEND_PYTHON_WATCH_H
#define BLEND_PYTHON_WATCH_H

#include <Python.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/threads/start_thread.h"
#include "shim/shim.h"

namespace blend_python {

// Id of the thread that runs signal handlers. Set once, under the interpreter's lock.
inline unsigned long main_thread = 0;

inline bool on_main_thread() { return PyThread_get_thread_ident() == main_thread; }

// Every callback passes it on its way into Python. While the interpreter shuts down, a thread that
// asks for its lock is ended by unwinding the stack, and the library's frames cannot be unwound. So
// the entrance is closed before that (atexit), after the callbacks that are inside have left.
// Thread-safe.
class Entrance {
 public:
  bool enter() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return false;
    ++inside_;
    return true;
  }
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    --inside_;
    changed_.notify_all();
  }
  // Called with the interpreter's lock. It is released meanwhile: callbacks inside may wait for it.
  void close() {
    PyThreadState* saved = PyEval_SaveThread();
    {
      std::unique_lock<std::mutex> lock(mutex_);
      closed_ = true;
      changed_.wait(lock, [this] { return inside_ == 0; });
    }
    PyEval_RestoreThread(saved);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int inside_ = 0;
};

inline Entrance entrance;

// The listener that the library is given; calls one that is written in Python, if there is one, and
// stops the call where Python cannot be entered. On the main thread it also checks every poll_ms
// for signals (Ctrl-C), and stops the call if a handler raises. Not more often, since taking the
// interpreter's lock may be slow.
class Watch : public blend_shim::Listener {
 public:
  explicit Watch(int poll_ms)
      : polls_(on_main_thread()), every_(std::chrono::milliseconds(poll_ms)) {}
  ~Watch() override {
    Py_XDECREF(type_);
    Py_XDECREF(value_);
    Py_XDECREF(trace_);
  }
  void set_inner(blend_shim::Listener* inner, bool tells_progress) {
    inner_ = inner;
    tells_progress_ = tells_progress;
  }
  // Raises what a signal's handler raised, if it did.
  void raise_kept() {
    if (type_ == nullptr) return;
    PyErr_Restore(type_, value_, trace_);
    type_ = value_ = trace_ = nullptr;
  }

  bool progress(uint64_t done, uint64_t total) override {
    if (tells_progress_ && !inside([&] { return inner_->progress(done, total); })) return false;
    return !polls_ || poll();
  }
  bool score(const blend_shim::Scoring& candidates) override {
    return inner_ == nullptr || inside([&] { return inner_->score(candidates); });
  }
  bool measurement(const blend_shim::Measurement& line) override {
    return inner_ == nullptr || inside([&] { return inner_->measurement(line); });
  }

 private:
  // Asks Python, or says no where it cannot be entered any more.
  template <typename Ask>
  static bool inside(Ask ask) {
    if (!entrance.enter()) return false;
    const bool answer = ask();
    entrance.leave();
    return answer;
  }

  bool poll() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < every_) return true;
    last_ = now;
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool raised = PyErr_CheckSignals() != 0;
    if (raised) PyErr_Fetch(&type_, &value_, &trace_);
    PyGILState_Release(state);
    return !raised;
  }

  bool polls_;
  std::chrono::steady_clock::duration every_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  blend_shim::Listener* inner_ = nullptr;
  bool tells_progress_ = false;
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* trace_ = nullptr;
};

// Runs `call`, which has no callbacks, without the interpreter's lock. On the main thread it runs
// on another thread, so that this one can check for signals; if a handler raises, `cancel` is
// requested. `is_long`: the call is worth a thread. Returns false if an exception is set. Called
// with the lock held.
template <typename Call>
bool interruptible(const blend_shim::Cancel& cancel, bool is_long, Call call) {
  if (!is_long || !on_main_thread()) {
    PyThreadState* saved = PyEval_SaveThread();
    call();
    PyEval_RestoreThread(saved);
    return true;
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool raised = false;
  PyThreadState* saved = PyEval_SaveThread();
  std::thread worker;
  try {
    worker = blend::start_thread([&] {
      call();
      const std::lock_guard<std::mutex> lock(mutex);
      done = true;
      changed.notify_one();
    });
  } catch (...) {  // no thread to be had: then without looking for signals
    call();
    PyEval_RestoreThread(saved);
    return true;
  }
  std::unique_lock<std::mutex> lock(mutex);
  while (!changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return done; })) {
    if (raised) continue;
    lock.unlock();
    PyEval_RestoreThread(saved);
    if (PyErr_CheckSignals() != 0) {
      raised = true;
      blend_shim::Cancel(cancel).request();
    }
    saved = PyEval_SaveThread();
    lock.lock();
  }
  lock.unlock();
  worker.join();
  PyEval_RestoreThread(saved);
  return !raised;
}

}  // namespace blend_python

#endif
