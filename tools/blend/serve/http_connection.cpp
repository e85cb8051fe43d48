#include "http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <ctime>
#include <limits>

namespace blend_cli::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

// More than this of an answer may not wait for its reader: the thread that writes it waits then.
constexpr size_t kMostWaiting = size_t{1} << 20;
constexpr int kSendBuffer = 256 << 10;
// Time in which a refused client may still send what it had begun.
constexpr uint32_t kLingerSeconds = 2;

std::string date() {
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  gmtime_r(&now, &t);
  char text[64];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[static_cast<size_t>(t.tm_wday)], t.tm_mday,
                kMonths[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour, t.tm_min,
                t.tm_sec);
  return text;
}

std::string head_of(const HttpResponse& response, const Visit& visit, bool keep,
                    const std::string& framing) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + ' ';
  out += std::string(http::obsolete_reason(static_cast<http::status>(response.status)));
  out += "\r\nDate: " + date() + "\r\n";
  if (!response.type.empty()) out += "Content-Type: " + response.type + "\r\n";
  out += "X-Request-Id: " + visit.id + "\r\n";
  for (const auto& [name, value] : response.fields) out += name + ": " + value + "\r\n";
  out += framing;
  if (!keep) out += "Connection: close\r\n";
  return out + "\r\n";
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Null: it is not well-formed.
std::optional<std::string> decoded(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == '%') {
      if (i + 2 >= path.size()) return std::nullopt;
      const int high = hex(path[i + 1]);
      const int low = hex(path[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == '\0') return std::nullopt;
    out += c;
  }
  return out;
}

}  // namespace

bool Flow::add(size_t bytes, uint32_t patience_s) {
  std::unique_lock lock(mutex_);
  const auto free = [&] { return gone_ || waiting_ < kMostWaiting; };
  if (!free()) {
    const auto begin = std::chrono::steady_clock::now();
    const bool in_time = changed_.wait_for(lock, std::chrono::seconds(patience_s) - waited_, free);
    waited_ += std::chrono::steady_clock::now() - begin;
    if (!in_time) gone_ = true;
  }
  if (gone_) return false;
  waiting_ += bytes;
  return true;
}

void Flow::written(size_t bytes) {
  const std::lock_guard lock(mutex_);
  waiting_ -= std::min(waiting_, bytes);
  changed_.notify_all();
}

void Flow::leave() {
  const std::lock_guard lock(mutex_);
  gone_ = true;
  changed_.notify_all();
}

bool Flow::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

// One request and its connection, for the thread that answers.
class Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, HttpHead head, std::string body,
           std::optional<MemoryBudget::Share> share)
      : visit_(connection->visit_),
        connection_(std::move(connection)),
        flow_(connection_->flow_),
        patience_s_(connection_->hall_.options.client_s),
        io_(connection_->hall_.io),
        head_(std::move(head)),
        body_(std::move(body)),
        share_(std::move(share)) {}
  ~Exchange() override {
    if (!begun_) respond({500, "text/plain", "the request was given up\n", {}});
    if (!ended_) {
      // In the middle of a stream an error can be shown only by cutting it off.
      asio::post(io_, [connection = std::move(connection_)] { connection->close(); });
    }
  }

  const HttpHead& head() const override { return head_; }
  Visit& visit() override { return *visit_; }
  std::string take_body() override { return std::move(body_); }
  bool alive() const override { return !flow_->gone(); }

  void respond(HttpResponse response) override {
    begun_ = ended_ = true;
    asio::post(io_, [connection = std::move(connection_), r = std::move(response)]() mutable {
      connection->respond(std::move(r));
    });
  }
  bool begin(HttpResponse head) override {
    begun_ = true;
    asio::post(io_, [connection = connection_, h = std::move(head)]() mutable {
      connection->begin(std::move(h));
    });
    return alive();
  }
  bool write(std::string piece) override {
    if (piece.empty()) return alive();  // an empty chunk would end the stream
    if (head_.version >= 11) {
      char size[24];
      std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
      piece.insert(0, size);
      piece += "\r\n";
    }
    if (!flow_->add(piece.size(), patience_s_)) return false;
    asio::post(io_, [connection = connection_, p = std::move(piece)]() mutable {
      connection->write(std::move(p));
    });
    return true;
  }
  void end() override {
    ended_ = true;
    asio::post(io_, [connection = std::move(connection_)] { connection->end(); });
  }

 private:
  const std::shared_ptr<Visit> visit_;
  std::shared_ptr<Connection> connection_;
  const std::shared_ptr<Flow> flow_;
  const uint32_t patience_s_;
  asio::io_context& io_;
  const HttpHead head_;
  std::string body_;
  const std::optional<MemoryBudget::Share> share_;
  bool begun_ = false;
  bool ended_ = false;
};

Connection::Connection(Hall& hall, Tcp::socket socket)
    : hall_(hall),
      socket_(std::move(socket)),
      timer_(hall.io),
      watch_timer_(hall.io),
      buffer_(kMostHead + 16384),
      place_(hall.lists[0].insert(hall.lists[0].end(), this)) {}

Connection::~Connection() {
  leave_visit(false);
  leave();
}

// An exchange may hold the connection after the client has gone.
void Connection::leave() {
  if (!listed_) return;
  listed_ = false;
  hall_.lists[static_cast<size_t>(phase_)].erase(place_);
  if (hall_.on_room) hall_.on_room();
}

void Connection::start() {
  boost::system::error_code ignored;
  socket_.set_option(Tcp::no_delay(true), ignored);  // events are small, and each is waited for
  // Else the system keeps megabytes for each client that does not read.
  socket_.set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  arm(hall_.options.client_s);
  read_head();
}

void Connection::leave_visit(bool whole) {
  if (visit_ == nullptr) return;
  visit_->whole = whole;
  visit_->end = Visit::Clock::now();
  visit_.reset();
}

void Connection::close() {
  if (flow_ != nullptr) flow_->leave();
  leave_visit(false);
  disarm();
  ++watch_;
  watch_timer_.cancel();
  boost::system::error_code ignored;
  socket_.close(ignored);
  leave();
}

bool Connection::silent() const {
  const bool begun = buffer_.size() > 0 || (parser_ && parser_->got_some());
  return phase_ == Phase::kHead && !begun;
}

void Connection::enter(Phase phase) {
  if (!listed_) return;
  auto& to = hall_.lists[static_cast<size_t>(phase)];
  to.splice(to.end(), hall_.lists[static_cast<size_t>(phase_)], place_);
  phase_ = phase;
  since_ = std::chrono::steady_clock::now();
  if (phase != Phase::kAnswer) hall_.on_room();
}

void Connection::arm(uint32_t seconds) {
  timer_.expires_after(std::chrono::seconds(seconds));
  timer_.async_wait([self = shared_from_this()](const beast::error_code& error) {
    // A deadline set again while this call was on its way is not over.
    if (!error && self->timer_.expiry() <= std::chrono::steady_clock::now()) self->late();
  });
}

void Connection::late() {
  if (!socket_.is_open()) return;
  const bool begun = phase_ == Phase::kBody || (phase_ == Phase::kHead && !silent());
  if (!begun || ended_) {
    // Data that the client has not read is dropped.
    boost::system::error_code ignored;
    if (ended_) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    return close();
  }
  fail(408, "the request did not come whole in " + std::to_string(hall_.options.client_s) +
                " seconds (--client-timeout)");
}

void Connection::read_head() {
  head_ = {};
  parser_.emplace();
  parser_->header_limit(kMostHead);
  // The limit is checked here, after the key. (1.74 takes boost::none for 0.)
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  head_read_ = false;
  buffer_.size() > 0 ? parse_head() : read_head_on();
}

void Connection::read_head_on() {
  constexpr size_t kStep = 4096;
  reading_ = true;
  socket_.async_read_some(buffer_.prepare(std::min(kStep, buffer_.max_size() - buffer_.size())),
                          [self = shared_from_this()](const beast::error_code& error, size_t n) {
                            self->reading_ = false;
                            if (self->phase_ == Phase::kLinger) return self->linger();
                            if (self->phase_ != Phase::kHead || self->ended_) return;  // late
                            self->buffer_.commit(n);
                            error ? self->close() : self->parse_head();
                          });
}

// Parses in pieces, unlike the parser's own functions: fields take many times their bytes, so they
// are counted as they come.
void Connection::parse_head() {
  if (!socket_.is_open()) return;
  beast::error_code error;
  buffer_.consume(parser_->put(buffer_.data(), error));
  const auto& fields = parser_->get();
  if (static_cast<size_t>(std::distance(fields.begin(), fields.end())) > kMostFields) {
    return fail(431, "the head has more than " + std::to_string(kMostFields) + " fields");
  }
  if (error == http::error::need_more) {
    error = {};
    if (buffer_.size() < buffer_.max_size()) return read_head_on();
    error = http::error::buffer_overflow;
  }
  on_head(error);
}

void Connection::on_head(beast::error_code error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    const bool line = parser_->get().target().empty();
    return fail(line ? 414 : 431,
                line ? std::string("the target of the request is too long")
                     : "the head is larger than " + std::to_string(kMostHead) + " bytes");
  }
  if (error == http::error::bad_version) return fail(505, "the version must be HTTP/1.0 or 1.1");
  if (error) return fail(400, "the head cannot be read: " + error.message());
  const auto wrong = judge_head();
  visit_ = hall_.handler.visit(&head_);
  if (wrong) return fail(wrong->first, wrong->second);
  std::optional<HttpResponse> answer = hall_.handler.head(head_);
  const bool has_body = parser_->chunked() || parser_->content_length().value_or(0) > 0;
  if (answer) {
    keep_ = keep_ && !has_body;
    return respond(std::move(*answer));
  }
  if (parser_->content_length().value_or(0) > hall_.options.most_body) {
    return fail(413, "the body is larger than " + std::to_string(hall_.options.most_body) +
                         " bytes (--max-body)");
  }
  enter(Phase::kBody);
  share_.emplace(*hall_.options.budget);
  const std::string* const expect = head_.field("Expect");
  if (expect == nullptr || !has_body || head_.version < 11) return read_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(kContinue),
                    [self = shared_from_this()](const beast::error_code& e, size_t) {
                      if (self->phase_ != Phase::kBody || self->ended_) return;
                      e ? self->close() : self->read_body();
                    });
}

std::optional<std::pair<int, std::string>> Connection::judge_head() {
  const auto& message = parser_->get();
  head_.method = std::string(message.method_string());
  head_.version = message.version();
  size_t n_hosts = 0;
  size_t n_lengths = 0;
  std::string codings;
  for (const auto& field : message) {
    head_.fields.emplace_back(field.name_string(), field.value());
    n_hosts += field.name() == http::field::host ? 1 : 0;
    n_lengths += field.name() == http::field::content_length ? 1 : 0;
    if (field.name() == http::field::transfer_encoding) {
      codings += (codings.empty() ? "" : ",") + std::string(field.value());
    }
  }
  head_read_ = true;
  keep_ = parser_->keep_alive() && !hall_.draining;
  if (n_hosts > 1 || (n_hosts == 0 && head_.version >= 11)) {
    return {{400, n_hosts > 1 ? "there are several Host fields" : "there is no Host field"}};
  }
  if (n_hosts == 1) head_.host = *head_.field("Host");
  std::string target(message.target());
  const auto has_scheme = [&](const std::string& scheme) {
    return beast::iequals(target.substr(0, scheme.size()), scheme);
  };
  if (has_scheme("http://") || has_scheme("https://")) {  // a proxy's form
    const size_t begin = target.find("//") + 2;
    const size_t end = std::min(target.find_first_of("/?", begin), target.size());
    head_.host = target.substr(begin, end - begin);
    target = target.substr(end);
    if (target.empty() || target[0] == '?') target.insert(0, "/");
  }
  if (target.find('#') != std::string::npos) return {{400, "the target has a fragment"}};
  const auto path = decoded(std::string_view(target).substr(0, target.find('?')));
  const bool star = target == "*" && head_.method == "OPTIONS";
  if (!path || (!target.starts_with('/') && !star)) {
    return {{400, "the target is not a path"}};
  }
  head_.path = *path;
  const bool has_coding = head_.field("Transfer-Encoding") != nullptr;
  if (has_coding && head_.version < 11) {
    return {{400, "HTTP/1.0 has no Transfer-Encoding"}};
  }
  if (has_coding && !(parser_->chunked() && beast::iequals(codings, "chunked"))) {
    return {{501, "the only Transfer-Encoding that is read is chunked"}};
  }
  const std::string* const length = head_.field("Content-Length");
  if (n_lengths > 1 || (length != nullptr && length->find(',') != std::string::npos)) {
    return {{400, "there are several Content-Lengths"}};
  }
  const std::string* const expect = head_.field("Expect");
  if (expect != nullptr && !beast::iequals(*expect, "100-continue")) {
    return {{417, "the only Expect that is met is 100-continue"}};
  }
  return std::nullopt;
}

void Connection::read_body() {
  if (parser_->is_done()) return hand_on();
  reading_ = true;
  http::async_read_some(socket_, buffer_, *parser_,
                        [self = shared_from_this()](const beast::error_code& error, size_t) {
                          self->reading_ = false;
                          self->on_body(error);
                        });
}

void Connection::on_body(beast::error_code error) {
  if (phase_ == Phase::kLinger) return linger();
  if (phase_ != Phase::kBody || ended_ || !socket_.is_open()) return;
  if (error == http::error::partial_message || error == http::error::end_of_stream) return close();
  if (error.category() == http::make_error_code(http::error::bad_field).category()) {
    return fail(400, "the body cannot be read: " + error.message());
  }
  if (error) return close();
  const std::string& body = parser_->get().body();
  if (body.size() > hall_.options.most_body) {
    return fail(413, "the body is larger than " + std::to_string(hall_.options.most_body) +
                         " bytes (--max-body)");
  }
  // A string's capacity may be twice its size.
  const size_t held = body.capacity();
  if (held > share_->bytes() && !share_->take(held - share_->bytes())) {
    return fail(503, "the memory for requests (--request-memory) is taken");
  }
  read_body();
}

void Connection::hand_on() {
  enter(Phase::kAnswer);
  disarm();
  flow_ = std::make_shared<Flow>();
  auto exchange = std::make_shared<Exchange>(shared_from_this(), std::move(head_),
                                             std::move(parser_->get().body()), std::move(share_));
  head_.method = exchange->head().method;
  head_.version = exchange->head().version;
  share_.reset();
  parser_.reset();
  watch();
  hall_.handler.request(std::move(exchange));
}

// Notices that the client has gone. One that sends its next request meanwhile is there.
void Connection::watch() {
  const uint64_t mine = ++watch_;
  socket_.async_wait(
      Tcp::socket::wait_read, [self = shared_from_this(), mine](const beast::error_code& error) {
        if (error || mine != self->watch_ || !self->socket_.is_open()) return;
        char byte = 0;
        const ssize_t n = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        const bool there = n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
        there ? self->look_again() : self->close();
      });
}

// Where bytes of the next request wait already, further bytes tell nothing.
void Connection::look_again() {
  const uint64_t mine = watch_;
  watch_timer_.expires_after(std::chrono::milliseconds(250));
  watch_timer_.async_wait([self = shared_from_this(), mine](const beast::error_code& error) {
    if (error || mine != self->watch_ || !self->socket_.is_open()) return;
    pollfd one = {self->socket_.native_handle(), POLLRDHUP, 0};
    const bool gone =
        ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    gone ? self->close() : self->look_again();
  });
}

void Connection::fail(int status, const std::string& why) {
  keep_ = false;
  share_.reset();
  if (parser_) parser_->get().body() = {};
  if (visit_ == nullptr) visit_ = hall_.handler.visit(nullptr);
  respond(hall_.handler.fault(status, why, head_read_ ? &head_ : nullptr));
}

void Connection::respond(HttpResponse response) {
  if (!socket_.is_open() || ended_) return;
  boost::system::error_code ignored;
  ++watch_;
  socket_.cancel(ignored);
  enter(Phase::kAnswer);
  keep_ = keep_ && !hall_.draining;
  ended_ = true;
  const bool bare = response.status == 204 || response.status == 304;
  visit_->status = response.status;
  std::string all =
      head_of(response, *visit_, keep_,
              bare ? "" : "Content-Length: " + std::to_string(response.body.size()) + "\r\n");
  if (head_.method != "HEAD" && !bare) all += response.body;
  queue(std::move(all));
}

void Connection::begin(HttpResponse head) {
  if (!socket_.is_open()) return;
  keep_ = keep_ && !hall_.draining && head_.version >= 11;
  visit_->status = head.status;
  queue(head_of(head, *visit_, keep_, head_.version >= 11 ? "Transfer-Encoding: chunked\r\n" : ""));
}

void Connection::write(std::string framed) {
  if (socket_.is_open()) queue(std::move(framed));
}

void Connection::end() {
  if (!socket_.is_open()) return;
  ended_ = true;
  queue(head_.version >= 11 ? "0\r\n\r\n" : "");
}

void Connection::queue(std::string bytes) {
  waiting_ += bytes;
  // Once complete, an answer has a time limit of its own, however slowly it is read.
  if (ended_) {
    enter(Phase::kRead);
    arm(hall_.options.client_s);
  }
  pump();
}

void Connection::pump() {
  if (is_writing_) return;
  if (n_written_ == writing_.size()) {
    writing_ = std::move(waiting_);
    waiting_.clear();
    n_written_ = 0;
  }
  if (writing_.empty()) {
    if (ended_) finish();
    return;
  }
  if (!ended_) arm(hall_.options.client_s);  // a client that reads on, however little, is not late
  is_writing_ = true;
  socket_.async_write_some(asio::buffer(writing_) + n_written_,
                           [self = shared_from_this()](const beast::error_code& error, size_t n) {
                             self->is_writing_ = false;
                             if (!self->socket_.is_open()) return;
                             if (error) return self->close();
                             self->n_written_ += n;
                             if (self->visit_ != nullptr) self->visit_->bytes += n;
                             if (self->flow_ != nullptr) self->flow_->written(n);
                             if (!self->ended_) self->disarm();
                             self->pump();
                           });
}

void Connection::finish() {
  ended_ = false;
  flow_.reset();
  leave_visit(true);
  std::string().swap(writing_);  // an idle connection keeps no room for an answer
  boost::system::error_code ignored;
  ++watch_;
  watch_timer_.cancel();
  socket_.cancel(ignored);
  if (!keep_ || hall_.draining) return linger();
  enter(Phase::kHead);
  arm(hall_.options.client_s);
  read_head();
}

// A connection closed while bytes of the client are unread loses the answer already sent, so
// incoming bytes are read and dropped for a moment.
void Connection::linger() {
  boost::system::error_code error;
  if (phase_ != Phase::kLinger) {
    enter(Phase::kLinger);
    arm(kLingerSeconds);
    socket_.shutdown(Tcp::socket::shutdown_send, error);
    if (error) return close();
  }
  // A read begun before owns the buffer until it ends, and comes back here.
  if (reading_ || !socket_.is_open()) return;
  parser_.reset();
  buffer_.clear();
  reading_ = true;
  socket_.async_read_some(buffer_.prepare(16384),
                          [self = shared_from_this()](const beast::error_code& e, size_t) {
                            self->reading_ = false;
                            if (!self->socket_.is_open()) return;
                            e ? self->close() : self->linger();
                          });
}

}  // namespace blend_cli::serve
