// CuttingProxy: a TCP connection to a server on loopback that breaks after a number of bytes, or is
// only so fast: for tests of what lies behind a network.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace blend::test {

// Thread-safe. Serves until it is destroyed.
class CuttingProxy {
 public:
  explicit CuttingProxy(uint16_t server);
  ~CuttingProxy();
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;

  uint16_t port() const { return port_; }
  // Every connection is reset once this many bytes went through it, in both directions together; 0:
  // none is.
  void cut_after(uint64_t bytes) { cut_after_ = bytes; }
  // Rate of all connections together, from the server; 0: as fast as it goes.
  void set_bytes_per_s(double rate) { rate_ = rate; }
  uint64_t n_cut() const { return n_cut_; }

 private:
  void run();

  const uint16_t server_;
  uint16_t port_ = 0;
  int listener_ = -1;
  std::atomic<uint64_t> cut_after_{0}, n_cut_{0};
  std::atomic<double> rate_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace blend::test
