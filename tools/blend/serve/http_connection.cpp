#include "http_connection.h"

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

// So much of an answer may wait for its reader before the thread that writes it does.
constexpr size_t kMostWaiting = size_t{1} << 20;
constexpr int kSendBuffer = 256 << 10;
// What a client still sends while it is told that it may not.
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

std::string head_of(const HttpResponse& response, bool keep, const std::string& framing) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + ' ';
  out += std::string(http::obsolete_reason(static_cast<http::status>(response.status)));
  out += "\r\nDate: " + date() + "\r\n";
  if (!response.type.empty()) out += "Content-Type: " + response.type + "\r\n";
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
      : connection_(std::move(connection)),
        flow_(connection_->flow_),
        patience_s_(connection_->hall_.options.client_s),
        io_(connection_->hall_.io),
        head_(std::move(head)),
        body_(std::move(body)),
        share_(std::move(share)) {}
  ~Exchange() override {
    if (!begun_) respond({500, "text/plain", "the request was given up\n", {}});
    if (!ended_) {
      // In the middle of a stream: that it is cut off is all that can be said.
      asio::post(io_, [connection = std::move(connection_)] { connection->close(); });
    }
  }

  const HttpHead& head() const override { return head_; }
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
    if (piece.empty()) return alive();  // in chunks it would be the end
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
      buffer_(kMostHead + 16384),
      place_(hall.lists[0].insert(hall.lists[0].end(), this)) {}

Connection::~Connection() {
  hall_.lists[static_cast<size_t>(phase_)].erase(place_);
  if (hall_.on_room) hall_.on_room();
}

void Connection::start() {
  boost::system::error_code ignored;
  socket_.set_option(Tcp::no_delay(true), ignored);  // events are small, and each is waited for
  // Else the system keeps megabytes for each that does not read.
  socket_.set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  arm(hall_.options.client_s);
  read_head();
}

void Connection::close() {
  if (flow_ != nullptr) flow_->leave();
  disarm();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

bool Connection::silent() const { return phase_ == Phase::kHead && buffer_.size() == 0; }

void Connection::enter(Phase phase) {
  auto& to = hall_.lists[static_cast<size_t>(phase)];
  to.splice(to.end(), hall_.lists[static_cast<size_t>(phase_)], place_);
  phase_ = phase;
  since_ = std::chrono::steady_clock::now();
  if (phase != Phase::kAnswer) hall_.on_room();
}

void Connection::arm(uint32_t seconds) {
  timer_.expires_after(std::chrono::seconds(seconds));
  timer_.async_wait([self = shared_from_this()](const beast::error_code& error) {
    // One that was set anew while this call was on its way counts no more.
    if (!error && self->timer_.expiry() <= std::chrono::steady_clock::now()) self->late();
  });
}

void Connection::late() {
  if (!socket_.is_open()) return;
  const bool begun = phase_ == Phase::kBody || (phase_ == Phase::kHead && !silent());
  if (!begun || ended_) {
    // What it has not read is not kept for it.
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
  // Counted here, after the key was looked at. (None at all is what 1.74 takes for 0.)
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  head_read_ = false;
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](const beast::error_code& error, size_t) {
                            self->on_head(error);
                          });
}

void Connection::on_head(beast::error_code error) {
  if (phase_ != Phase::kHead || ended_ || !socket_.is_open()) return;  // it was late
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    const bool line = parser_->get().target().empty();
    return fail(line ? 414 : 431, line ? "the target of the request is too long"
                                       : "the head is larger than 65536 bytes");
  }
  if (error == http::error::bad_version) return fail(505, "the version must be HTTP/1.0 or 1.1");
  if (error.category() == http::make_error_code(http::error::bad_field).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return fail(400, "the head cannot be read: " + error.message());
  }
  if (error) return close();
  if (const auto wrong = judge_head()) return fail(wrong->first, wrong->second);
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
  head_ = {};
  head_.method = std::string(message.method_string());
  head_.version = message.version();
  size_t n_hosts = 0;
  for (const auto& field : message) {
    head_.fields.emplace_back(field.name_string(), field.value());
    n_hosts += field.name() == http::field::host ? 1 : 0;
  }
  head_read_ = true;
  keep_ = parser_->keep_alive() && !hall_.draining;
  if (n_hosts > 1 || (n_hosts == 0 && head_.version >= 11)) {
    return {{400, n_hosts > 1 ? "there are several Host fields" : "there is no Host field"}};
  }
  if (n_hosts == 1) head_.host = *head_.field("Host");
  std::string target(message.target());
  if (target.starts_with("http://") || target.starts_with("https://")) {  // a proxy's form
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
  if (has_coding && !parser_->chunked()) {
    return {{501, "the only Transfer-Encoding that is read is chunked"}};
  }
  const std::string* const expect = head_.field("Expect");
  if (expect != nullptr && !beast::iequals(*expect, "100-continue")) {
    return {{417, "the only Expect that is met is 100-continue"}};
  }
  return std::nullopt;
}

void Connection::read_body() {
  if (parser_->is_done()) return hand_on();
  http::async_read_some(socket_, buffer_, *parser_,
                        [self = shared_from_this()](const beast::error_code& error, size_t) {
                          self->on_body(error);
                        });
}

void Connection::on_body(beast::error_code error) {
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
  // What a string keeps may be twice what is in it.
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

// Finds out that the client has gone. One that sends its next request meanwhile is there.
void Connection::watch() {
  const uint64_t mine = ++watch_;
  socket_.async_wait(
      Tcp::socket::wait_read, [self = shared_from_this(), mine](const beast::error_code& error) {
        if (error || mine != self->watch_ || !self->socket_.is_open()) return;
        char byte = 0;
        const ssize_t n = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        const bool there = n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
        if (!there) self->close();
      });
}

void Connection::fail(int status, const std::string& why) {
  keep_ = false;
  share_.reset();
  if (parser_) parser_->get().body() = {};
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
  std::string all =
      head_of(response, keep_,
              bare ? "" : "Content-Length: " + std::to_string(response.body.size()) + "\r\n");
  if (head_.method != "HEAD" && !bare) all += response.body;
  queue(std::move(all));
}

void Connection::begin(HttpResponse head) {
  if (!socket_.is_open()) return;
  keep_ = keep_ && !hall_.draining && head_.version >= 11;
  queue(head_of(head, keep_, head_.version >= 11 ? "Transfer-Encoding: chunked\r\n" : ""));
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
  // From its end on an answer has a time of its own, however slowly it is read.
  if (ended_) arm(hall_.options.client_s);
  pump();
}

void Connection::pump() {
  if (is_writing_) return;
  if (waiting_.empty()) {
    if (ended_) finish();
    return;
  }
  if (!ended_) arm(hall_.options.client_s);
  is_writing_ = true;
  writing_ = std::move(waiting_);
  waiting_.clear();
  asio::async_write(socket_, asio::buffer(writing_),
                    [self = shared_from_this()](const beast::error_code& error, size_t) {
                      self->is_writing_ = false;
                      if (!self->socket_.is_open()) return;
                      if (error) return self->close();
                      if (self->flow_ != nullptr) self->flow_->written(self->writing_.size());
                      self->writing_ = {};
                      if (!self->ended_) self->disarm();
                      self->pump();
                    });
}

void Connection::finish() {
  ended_ = false;
  flow_.reset();
  boost::system::error_code ignored;
  ++watch_;
  socket_.cancel(ignored);
  if (!keep_ || hall_.draining) return linger();
  enter(Phase::kHead);
  arm(hall_.options.client_s);
  read_head();
}

// A connection that is closed while bytes of the client are unread loses the answer that it was
// given: what still comes is thrown away for a moment.
void Connection::linger() {
  boost::system::error_code error;
  if (phase_ != Phase::kLinger) {
    enter(Phase::kLinger);
    parser_.reset();
    arm(kLingerSeconds);
    socket_.shutdown(Tcp::socket::shutdown_send, error);
    if (error) return close();
  }
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(16384),
                          [self = shared_from_this()](const beast::error_code& e, size_t) {
                            if (!self->socket_.is_open()) return;
                            e ? self->close() : self->linger();
                          });
}

}  // namespace blend_cli::serve
