// IdleWorker: one thread of a store handle for work that nobody waits for. Before each layer of a
// job it stands back as long as a call on the context is running or has just ended.
//
// Whoever has such work is a client with a queue of its own. The clients take turns, a job each, so
// that none waits for a queue that never ends: a host with new pairs of chunks in every prompt
// always has records to store, and its answers are to be checked all the same. Only while somebody
// waits for a job of the first client does that client go before the others.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/process.h"
#include "engine/runtime.h"

namespace blend {

// Thread-safe. Its thread starts with the first job. In a child of the process that made it the
// thread does not exist, and it does nothing.
class IdleWorker {
 public:
  class Client {
   public:
    virtual ~Client() = default;
    // On the worker's thread: does one job, if there is one. False: there was none.
    virtual bool work() = 0;
  };
  // Somebody waits for a job of the first client: jobs of the others that ask make way.
  class Urgent {
   public:
    explicit Urgent(IdleWorker& worker) : worker_(worker), hurry_(worker.foreground()) {
      worker_.urge(1);
    }
    ~Urgent() { worker_.urge(-1); }
    Urgent(const Urgent&) = delete;
    Urgent& operator=(const Urgent&) = delete;

   private:
    IdleWorker& worker_;
    const Foreground::Hurry hurry_;
  };

  explicit IdleWorker(std::shared_ptr<Runtime> runtime);
  // Clients have left by then.
  ~IdleWorker();
  IdleWorker(const IdleWorker&) = delete;
  IdleWorker& operator=(const IdleWorker&) = delete;

  // A client has left before it ends. leave() comes back once no work() of it runs, and none will;
  // it does not wait for calls of the host meanwhile. Whoever calls it has cancelled the job.
  void enter(Client& client);
  void leave(Client& client);
  // Sees to it that the thread is there; false: the system has none.
  bool start();
  // A client has work. Does not throw.
  void notify();

  // What a job reports its layers to: each stands back first. `makes_way`: gives CALLBACK as soon
  // as somebody waits for a job of the first client.
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

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Client*> clients_;  // guarded by mutex_, as all below
  Client* working_ = nullptr;     // in whose work() the thread is
  bool notified_ = false;
  bool stop_ = false;
  int urgent_ = 0;
  std::thread thread_;
};

}  // namespace blend
