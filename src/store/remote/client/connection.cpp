#include "store/remote/client/connection.h"

#include <array>

namespace blend {
namespace {

iovec to_iovec(const void* data, size_t bytes) { return {const_cast<void*>(data), bytes}; }

Status refused(const char* what, const Reply& reply) {
  return make_error(BLEND_E_IO, "the server refuses %s: %s", what, quoted(reply).c_str());
}

void append_command(std::string& out, std::span<const std::string_view> command) {
  append_command_head(out, command.size());
  for (const std::string_view part : command) append_bulk(out, part);
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(const RemoteAddress& address, HostLookUp& host,
                                                     const RemoteOptions& options,
                                                     const TlsContext* tls, SteadyTime deadline) {
  BLEND_ASSIGN(Socket socket, connect_socket(host, deadline));
  std::unique_ptr<Stream> stream;
  if (tls == nullptr) {
    stream = make_plain_stream(std::move(socket));
  } else {
    BLEND_ASSIGN(stream, tls->connect(std::move(socket), address.host, deadline));
  }
  std::unique_ptr<Connection> connection(new Connection(std::move(stream)));
  const RespReader::Limits limits;
  if (!options.password.empty()) {
    std::vector<std::string_view> auth = {"AUTH"};
    if (!options.user.empty()) auth.push_back(options.user);
    auth.push_back(options.password.view());
    BLEND_ASSIGN(const Reply reply, connection->call(auth, deadline, limits));
    if (reply.type == Reply::Type::error) return refused("user or password", reply);
  }
  if (options.url.database != 0) {
    const std::string database = std::to_string(options.url.database);
    const std::array<std::string_view, 2> select = {"SELECT", database};
    BLEND_ASSIGN(const Reply reply, connection->call(select, deadline, limits));
    if (reply.type == Reply::Type::error) return refused("the database", reply);
  }
  return connection;
}

Status Connection::send(std::span<const std::string_view> command, SteadyTime deadline) {
  std::string bytes;
  size_t most = 32;
  for (const std::string_view part : command) most += part.size() + 32;
  bytes.reserve(most);  // or what it outgrows would be left behind
  append_command(bytes, command);
  const Wiped wiped(bytes.data(), bytes.size());  // it may have the password
  iovec parts[] = {to_iovec(bytes.data(), bytes.size())};
  return stream_->write(parts, deadline);
}

Result<Reply> Connection::call(std::span<const std::string_view> command, SteadyTime deadline,
                               const RespReader::Limits& limits) {
  BLEND_RETURN_IF_ERROR(send(command, deadline));
  return receive(deadline, limits);
}

Status Connection::send_all(std::span<const std::vector<std::string_view>> commands,
                            SteadyTime deadline) {
  std::string bytes;
  for (const auto& command : commands) append_command(bytes, command);
  iovec parts[] = {to_iovec(bytes.data(), bytes.size())};
  return stream_->write(parts, deadline);
}

Result<Reply> Connection::receive(SteadyTime deadline, const RespReader::Limits& limits) {
  source_.deadline = deadline;
  return reader_.read(limits);
}

Result<Reply> Connection::call_into(std::span<const std::string_view> command,
                                    std::span<const Place> places, bool* taken,
                                    SteadyTime deadline) {
  *taken = false;
  BLEND_RETURN_IF_ERROR(send(command, deadline));
  source_.deadline = deadline;
  return reader_.read_into(places, taken, {});
}

Result<Reply> Connection::call_with(std::span<const std::string_view> command, ValueSource& value,
                                    SteadyTime deadline) {
  BLEND_RETURN_IF_ERROR(value.begin());
  std::string head;
  std::string tail = "\r\n";
  append_command_head(head, command.size() + 1);
  for (size_t i = 0; i < command.size(); ++i) append_bulk(i < 2 ? head : tail, command[i]);
  append_bulk_head(head, value.bytes());
  std::vector<Part> parts{std::as_bytes(std::span(head))};
  std::vector<iovec> out;
  for (bool last = false; !last;) {
    BLEND_RETURN_IF_ERROR(value.next(parts, &last));
    if (last) parts.push_back(std::as_bytes(std::span(tail)));
    out.clear();
    for (const Part& part : parts) out.push_back(to_iovec(part.data(), part.size()));
    parts.clear();
    BLEND_RETURN_IF_ERROR(stream_->write(out, deadline));
  }
  source_.deadline = deadline;
  return reader_.read({});
}

}  // namespace blend
