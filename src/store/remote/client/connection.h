// Connection: one connection to one server, that has said who it is.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/remote/client/resp.h"
#include "store/remote/client/stream.h"
#include "store/remote/client/tls.h"
#include "store/remote/options.h"

namespace blend {

// Used by one thread, but for shut(). After an error of a call the connection is good for nothing.
class Connection {
 public:
  // AUTH and SELECT included. IO: with the server's own words where it refuses us.
  static Result<std::unique_ptr<Connection>> open(const RemoteAddress& address, HostLookUp& host,
                                                  const RemoteOptions& options,
                                                  const TlsContext* tls, SteadyTime deadline);

  // A command of text, and its reply. An error of the server is a reply.
  Result<Reply> call(std::span<const std::string_view> command, SteadyTime deadline,
                     const RespReader::Limits& limits);
  // The same where a bulk of just that length goes to `places`.
  Result<Reply> call_into(std::span<const std::string_view> command, std::span<const Place> places,
                          bool* taken, SteadyTime deadline);
  // The same where the command's third part is `value`, which is sent as it comes.
  Result<Reply> call_with(std::span<const std::string_view> command, ValueSource& value,
                          SteadyTime deadline);
  // Several commands in one go. Their replies are received in the same order; a connection that has
  // not received all of them is good for nothing.
  Status send_all(std::span<const std::vector<std::string_view>> commands, SteadyTime deadline);
  Result<Reply> receive(SteadyTime deadline, const RespReader::Limits& limits);
  void shut() noexcept { stream_->shut(); }
  // Between two calls: whether the next reply will be that of the next call. A server that has sent
  // more than it was asked for, or has closed the connection, is not in step.
  bool in_step() noexcept { return reader_.empty() && stream_->silent(); }

 private:
  // What RespReader reads from: the stream, until the deadline of the call.
  class Source final : public ByteSource {
   public:
    explicit Source(Stream& stream) : stream_(stream) {}
    Result<size_t> read(std::byte* out, size_t bytes) override {
      // Here, too: as long as something comes nobody waits, and a stream would not notice.
      if (std::chrono::steady_clock::now() >= deadline) return timed_out("the server is too slow");
      return stream_.read(out, bytes, deadline);
    }
    SteadyTime deadline;

   private:
    Stream& stream_;
  };

  explicit Connection(std::unique_ptr<Stream> stream)
      : stream_(std::move(stream)), source_(*stream_), reader_(source_) {}
  Status send(std::span<const std::string_view> command, SteadyTime deadline);

  const std::unique_ptr<Stream> stream_;
  Source source_;
  RespReader reader_;
};

}  // namespace blend
