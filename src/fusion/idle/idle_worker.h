// IdleWorker: one thread of a store handle for background work. Before each layer of a job it
// pauses while a call on the context is running or has just ended.
//
// Each kind of work is a client with its own queue. The worker serves the clients in turn, one job
// each, so that no client is kept waiting by another's endless queue: a host with new pairs of
// chunks in every prompt always has records to store, and still its answers must be checked. Only
// if a caller waits for a job of the first client is that client served before the others.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "base/threads/cancel.h"
#include "base/threads/guarded.h"
#include "base/threads/process.h"
#include "engine/runtime.h"

namespace blend {

// Thread-safe. Its thread starts with the first job. In a child of the process that made it the
// thread does not exist: the worker and its clients are leaked there.
class IdleWorker {
 public:
  class Client {
   public:
    virtual ~Client() = default;
    // On the worker's thread: does one job, if there is one. False: there was none.
    virtual bool work() = 0;
  };
  // While one exists, a caller waits for a job of the first client. Jobs of other clients that run
  // with `makes_way` stop then.
  class Urgent {
   public:
    explicit Urgent(IdleWorker& worker) : count_(worker), hurry_(worker.foreground()) {}
    Urgent(const Urgent&) = delete;
    Urgent& operator=(const Urgent&) = delete;

   private:
    struct Count {
      explicit Count(IdleWorker& of) : worker(of) { worker.urge(1); }
      ~Count() { worker.urge(-1); }
      Count(const Count&) = delete;
      Count& operator=(const Count&) = delete;
      IdleWorker& worker;
    };
    // The hurry ends first. Otherwise a job that makes way could begin between the two ends, and
    // run without a pause beside the host's calls.
    const Count count_;
    const Foreground::Hurry hurry_;
  };

  explicit IdleWorker(std::shared_ptr<Runtime> runtime);
  // All clients must have left before.
  ~IdleWorker();
  IdleWorker(const IdleWorker&) = delete;
  IdleWorker& operator=(const IdleWorker&) = delete;

  // A client must leave before it is destroyed. leave() returns when no work() of it is running,
  // and none will be called. It does not wait for calls of the host; the caller has cancelled the
  // job.
  void enter(Client& client);
  void leave(Client& client);
  // Starts the thread if it is not running; false: the system refused.
  bool start();
  // Tells the worker that a client has work. Does not throw.
  void notify();

  // The Watch for a job: at each layer it pauses while calls run. `makes_way`: it stops the job
  // with CALLBACK as soon as a caller waits for a job of the first client.
  Watch polite(const CancelToken& cancel, bool makes_way = false);

  bool forked() const { return !process_.is_this_process(); }
  Runtime& runtime() const { return *runtime_; }
  Foreground& foreground() const { return runtime_->foreground(); }

 private:
  void run();
  void urge(int by);
  bool is_urgent() const;

  const ProcessMark process_;
  const std::shared_ptr<Runtime> runtime_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Client*> clients_ BLEND_GUARDED_BY(mutex_);
  Client* working_ BLEND_GUARDED_BY(mutex_) = nullptr;  // the client whose work() is running
  bool notified_ BLEND_GUARDED_BY(mutex_) = false;
  bool stop_ BLEND_GUARDED_BY(mutex_) = false;
  int urgent_ BLEND_GUARDED_BY(mutex_) = 0;
  std::thread thread_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
