#include "server.h"

#include <algorithm>

#include "../fidelity_report.h"
#include "embeddings.h"

namespace blend_cli::serve {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kEmbeddings = "/v1/embeddings";
constexpr const char* kModels = "/v1/models";
constexpr const char* kHealth = "/health";
constexpr const char* kMetrics = "/metrics";
constexpr const char* kOther = "other";
constexpr const char* kGet = "GET, HEAD, OPTIONS";
constexpr const char* kPost = "POST, OPTIONS";

// The counter and the methods of a path; kOther and null: there is no such path.
struct Route {
  const char* name = kOther;
  const char* methods = nullptr;
};
Route route_of(const std::string& path) {
  if (path == kChat) return {kChat, kPost};
  if (path == kCompletions) return {kCompletions, kPost};
  if (path == kEmbeddings) return {kEmbeddings, kPost};
  if (path == kModels || path.starts_with("/v1/models/")) return {kModels, kGet};
  if (path == kHealth) return {kHealth, kGet};
  if (path == kMetrics) return {kMetrics, kGet};
  return {};
}

bool is_known_method(const std::string& method) {
  for (const char* const one :
       {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}) {
    if (method == one) return true;
  }
  return false;
}

// Also with parameters, such as a charset.
bool is_json(const HttpHead& head) {
  const std::string* const type = head.field("Content-Type");
  if (type == nullptr) return false;
  std::string name = type->substr(0, type->find(';'));
  while (!name.empty() && name.back() == ' ') name.pop_back();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name == "application/json";
}

// The arguments of calls, which are one text in a body, become trees in the prompt.
void charge_calls(const Request& asked, MemoryBudget::Share& share) {
  constexpr size_t kValueBytes = 192;
  size_t bytes = 0;
  for (const blendpp::ChatMessage& m : asked.messages) {
    const auto n = std::count_if(m.members.begin(), m.members.end(), [](char c) {
      return c == ',' || c == ':' || c == '[' || c == '{';
    });
    bytes += m.members.size() + static_cast<size_t>(n) * kValueBytes;
  }
  if (bytes > 0 && !share.take(bytes)) {
    throw HttpError(503, "the memory for requests (--request-memory) is taken");
  }
}

// An answer that is not a stream holds the likeliest tokens of all its tokens until it is complete.
void charge_logprobs(const Request& asked, MemoryBudget::Share& share) {
  constexpr size_t kMostCells = 400'000;
  constexpr size_t kCellBytes = 448;
  if (asked.stream || !asked.logprobs) return;
  const size_t n_answers = asked.n * std::max<size_t>(1, asked.prompts.size());
  const size_t cells = n_answers * asked.generate.max_tokens * (1 + asked.top_logprobs);
  if (cells > kMostCells) {
    throw HttpError(400,
                    "answers x 'max_tokens' x (1 + likeliest tokens) is " + std::to_string(cells) +
                        ", and at most " + std::to_string(kMostCells) +
                        " are kept for one answer: ask for a stream, or for less",
                    {}, "logprobs");
  }
  if (!share.take(cells * kCellBytes)) {
    throw HttpError(503, "the memory for requests (--request-memory) is taken");
  }
}

// What went wrong in the server, for its log. What was wrong with a request is left out: a message
// about it may have parts of the prompt in it.
void note_failure(Visit& visit, const HttpError& error) {
  if (error.status() == 500 || error.status() == 503) visit.error = error.what();
}

void note_cost(Visit& visit, const Answer& answer) {
  const Account& account = answer.account();
  visit.cost = {account.rows, account.cached, account.recomputed, answer.n_generated(),
                account.ttft_ns};
}

// One of the requests that a client may have at a time.
class Presence {
 public:
  explicit Presence(Client& client) : client_(&client), n_(++client.n_present) {}
  ~Presence() { --client_->n_present; }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  bool fits() const { return client_->parallel == 0 || n_ <= client_->parallel; }

 private:
  Client* client_;
  size_t n_;
};

}  // namespace

Server::Server(const ServerOptions& options, const Engine& engine, const Access& access,
               ServerLog& log)
    : options_(options),
      engine_(engine),
      access_(access),
      log_(log),
      budget_(options.request_memory),
      http_(
          [this] {
            HttpOptions http = options_.http;
            http.budget = &budget_;
            return http;
          }(),
          handler()),
      workers_(options.parallel, options.queue) {}

HttpHandler Server::handler() {
  return {[this](const HttpHead* head) { return log_.visit(head); },
          [this](const HttpHead& head) { return on_head(head); },
          [this](std::shared_ptr<HttpExchange> exchange) { on_request(exchange); },
          [this](int status, const std::string& why, const HttpHead* head) {
            return fail(head, head == nullptr ? kOther : route_of(head->path).name, {status, why});
          }};
}

HttpResponse Server::fail(const HttpHead* head, const char* route, const HttpError& error) {
  HttpResponse out;
  out.status = error.status();
  if (error.status() == 429 || error.status() == 503) out.fields.emplace_back("Retry-After", "1");
  if (error.status() == 401) out.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (head != nullptr) {
    for (auto& field : access_.cors(*head)) out.fields.push_back(std::move(field));
  }
  out.body = dump(error_json(error));
  counters_.request(route, error.status());
  return out;
}

HttpResponse Server::reply(const HttpHead& head, const char* route, std::string body) {
  HttpResponse out;
  out.fields = access_.cors(head);
  out.body = std::move(body);
  counters_.request(route, 200);
  return out;
}

Json Server::model_json() const {
  return {{"id", engine_.name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "libblend"},
          {"context_length", engine_.model->info().context_length}};
}

HttpResponse Server::preflight(const HttpHead& head, const char* allow) {
  HttpResponse out;
  out.status = 204;
  out.type.clear();
  out.fields = access_.cors(head);
  out.fields.emplace_back("Allow", allow);
  counters_.request(kOther, 204);
  return out;
}

// Called before the body is read.
std::optional<HttpResponse> Server::on_head(const HttpHead& head) {
  try {
    const Route route = route_of(head.path);
    if (const auto why = access_.foreign(head)) return fail(&head, route.name, {403, *why});
    // Browsers ask without a key whether they may send a request.
    if (head.method == "OPTIONS" && (route.methods != nullptr || head.path == "*")) {
      return preflight(head, route.methods != nullptr ? route.methods : "GET, HEAD, POST, OPTIONS");
    }
    const Client* const client = access_.client(head);
    if (client == nullptr && head.path != kHealth) {
      return fail(&head, kOther, {401, "the API key is missing or wrong", "invalid_api_key"});
    }
    if (!is_known_method(head.method)) {
      return fail(&head, route.name, {501, "there is no such method"});
    }
    if (route.methods == nullptr) {
      return fail(
          &head, kOther,
          {404,
           "there are POST /v1/chat/completions, POST /v1/completions, POST /v1/embeddings, GET "
           "/v1/models, GET /health and GET /metrics"});
    }
    const bool reads = head.method == "GET" || head.method == "HEAD";
    if (route.methods == kGet && reads) {
      if (head.path == kMetrics && !client->metrics) {
        return fail(&head, kMetrics, {403, "this key may not read what all clients did"});
      }
      return this->route(head);
    }
    if (route.methods != kPost || head.method != "POST") {
      HttpResponse out = fail(&head, route.name, {405, head.path + " takes " + route.methods});
      out.fields.emplace_back("Allow", route.methods);
      return out;
    }
    if (!is_json(head)) {
      return fail(&head, route.name,
                  {415, "the body must be JSON, sent with Content-Type: application/json"});
    }
    const std::string* const packed = head.field("Content-Encoding");
    if (packed != nullptr && *packed != "identity") {
      HttpResponse out = fail(&head, route.name, {415, "a packed body is not read"});
      out.fields.emplace_back("Accept-Encoding", "identity");
      return out;
    }
    if (head.field("Content-Length") == nullptr && head.field("Transfer-Encoding") == nullptr) {
      return fail(&head, route.name,
                  {411, "the body has neither Content-Length nor Transfer-Encoding"});
    }
    if (stopping_) return fail(&head, route.name, {503, "the server is stopping"});
    return std::nullopt;
  } catch (const std::exception& error) {
    return fail(&head, kOther, {500, error.what()});
  }
}

std::string Server::profile_metrics() const {
  if (!engine_.trusted) return {};
  return std::string(
             "# HELP blend_profile_trusted 1: the profile trusts the ratio that it asks for.\n"
             "# TYPE blend_profile_trusted gauge\nblend_profile_trusted ") +
         (*engine_.trusted ? "1\n" : "0\n");
}

// Paths that are answered at once.
HttpResponse Server::route(const HttpHead& head) {
  if (head.path == kHealth) {
    if (stopping_) return fail(&head, kHealth, {503, "the server is stopping"});
    return reply(head, kHealth, {{"status", "ok"}});
  }
  if (head.path == kMetrics) {
    counters_.request(kMetrics, 200);
    return {200, "text/plain; version=0.0.4",
            counters_.text(http_.n_connections(), workers_.running(), workers_.waiting()) +
                profile_metrics() + engine_.store->metrics("store") +
                fidelity_metrics(fidelity_rows(*engine_.store)),
            access_.cors(head)};
  }
  if (head.path == kModels) {
    return reply(head, kModels, {{"object", "list"}, {"data", Json::array({model_json()})}});
  }
  if (head.path.substr(std::string(kModels).size() + 1) == engine_.name) {
    return reply(head, kModels, model_json());
  }
  return fail(&head, kModels,
              {404, "there is no such model; there is '" + engine_.name + "'", "model_not_found"});
}

void Server::on_request(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpHead& head = exchange->head();
  const char* const route = route_of(head.path).name;
  Client& client = *access_.client(head);
  auto presence = std::make_shared<Presence>(client);
  if (!presence->fits()) {
    presence.reset();
    workers_.sweep();
    presence = std::make_shared<Presence>(client);
  }
  if (!presence->fits()) {
    return exchange->respond(
        fail(&head, route,
             {429, "this key has all of its " + std::to_string(client.parallel) + " places"}));
  }
  Workers::Job job;
  job.run = [this, exchange, presence, &client] { return complete(exchange, client); };
  job.is_abandoned = [exchange] { return !exchange->alive(); };
  presence.reset();
  if (workers_.submit(std::move(job))) return;
  exchange->respond(fail(&head, route,
                         {429, "all " + std::to_string(workers_.most()) + " places are taken and " +
                                   std::to_string(workers_.most_waiting()) + " requests wait"}));
}

Workers::Last Server::complete(const std::shared_ptr<HttpExchange>& exchange,
                               const Client& client) {
  const HttpHead& head = exchange->head();
  const char* const route = route_of(head.path).name;
  Visit& visit = exchange->visit();
  visit.taken = Visit::Clock::now();
  visit.tenant = client.tenant;
  const ServerLog::Scope scope(visit);
  const auto failed = [&](const HttpError& error) -> Workers::Last {
    if (error.status() == kGone) counters_.hang_up();
    note_failure(visit, error);
    return [exchange, response = fail(&head, route, error)]() mutable {
      exchange->respond(std::move(response));
    };
  };
  try {
    const auto alive = [&] { return exchange->alive(); };
    if (!alive()) throw HttpError(kGone, "the client has gone");  // while it waited
    const uint32_t most = client.max_tokens == 0 ? options_.max_tokens
                                                 : std::min(client.max_tokens, options_.max_tokens);
    MemoryBudget::Share share(budget_);
    std::string text = exchange->take_body();
    BodyTexts texts = body_texts(text);
    Json body = read_json(std::move(text), share);
    const auto respond = [exchange](HttpResponse response) -> Workers::Last {
      response.fields.emplace_back("Cache-Control", "no-store");
      return [exchange, response = std::move(response)]() mutable {
        exchange->respond(std::move(response));
      };
    };
    if (route == kEmbeddings) {
      EmbeddingAnswer made = embed(engine_, read_embedding_request(std::move(body)), share, alive);
      counters_.embed(made.n_tokens);
      visit.cost = {.prompt_tokens = made.n_tokens};
      return respond(reply(head, route, std::move(made.body)));
    }
    Request asked = read_request(std::move(body), std::move(texts), route == kChat, most);
    charge_logprobs(asked, share);
    charge_calls(asked, share);
    const bool streams = asked.stream;
    Answer answer(engine_, std::move(asked), client.tenant, alive);
    if (streams) return stream(exchange, answer);
    if (!answer.run(nullptr, alive)) throw HttpError(kGone, "the client has gone");
    counters_.answer(answer.account(), answer.n_generated());
    note_cost(visit, answer);
    return respond(reply(head, route, answer.whole()));
  } catch (const HttpError& error) {
    return failed(error);
  } catch (const blendpp::Error& error) {
    return failed(http_error(error));
  } catch (const std::bad_alloc&) {
    return failed({503, "there is not enough memory"});
  } catch (const std::exception& error) {
    return failed({500, error.what()});
  }
}

// A stream's events.
Workers::Last Server::stream(const std::shared_ptr<HttpExchange>& exchange, Answer& answer) {
  const HttpHead& head = exchange->head();
  const char* const route = route_of(head.path).name;
  HttpResponse begin;
  begin.type = "text/event-stream";
  begin.fields = access_.cors(head);
  begin.fields.emplace_back("Cache-Control", "no-store");
  bool listening = exchange->begin(std::move(begin));
  int status = 200;
  const auto tell = [&](const HttpError& error) {
    status = error.status();
    note_failure(exchange->visit(), error);
    listening = exchange->write("data: " + dump(error_json(error)) + "\n\n");
  };
  try {
    listening =
        listening && answer.run([&](const std::string& event) { return exchange->write(event); },
                                [&] { return exchange->alive(); });
  } catch (const HttpError& error) {
    tell(error);
  } catch (const blendpp::Error& error) {
    tell(http_error(error));
  } catch (const std::exception& error) {
    tell({500, error.what()});
  }
  counters_.request(route, listening ? status : kGone);
  note_cost(exchange->visit(), answer);
  if (!listening) {
    counters_.hang_up();
    return [exchange] {};  // cut off
  }
  counters_.answer(answer.account(), answer.n_generated());
  return [exchange] { exchange->end(); };
}

}  // namespace blend_cli::serve
