/*
 * service.c - documents in, answers streamed out, several requests at a time on one context.
 *
 *   service [--model MODEL.gguf] [--store DIR] [--port N]
 *
 * What it answers is in examples/README.md. HTTP is libmicrohttpd's, a thread a connection; JSON is
 * jansson's (Debian: libmicrohttpd-dev libjansson-dev). SIGTERM or SIGINT: it finishes what it has
 * begun. A client that goes away ends its generation: the callback gives 1, and that is all.
 */
#define _XOPEN_SOURCE 700
#include <arpa/inet.h>
#include <inttypes.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retrieval.h"

#ifndef EXAMPLES
#define EXAMPLES "examples"
#endif

#define MAX_BODY (4u << 20)
#define CHUNK_TOKENS 96

/* A line of /metrics: requests of one path that ended with one status. */
struct counter {
  const char* path;
  unsigned status;
  uint64_t n;
};

/* What the requests share. The library's objects are thread-safe; the rest has a mutex. */
struct service {
  blend_model* model;
  blend_store* store;
  pthread_mutex_t mutex;
  pthread_cond_t idle;
  unsigned n_active; /* requests that were begun and not answered */
  struct chunks chunks;
  char** names; /* of documents, [n_names] */
  size_t n_names;
  struct counter counters[32];
  size_t n_counters;
  uint64_t n_tokens;
  uint64_t n_answers;
  double ttft_s;
};

/* A request: its body while it comes. */
struct request {
  struct text body;
  int too_large;
};

static void count(struct service* service, const char* path, unsigned status) {
  size_t i = 0;
  pthread_mutex_lock(&service->mutex);
  while (i < service->n_counters &&
         (service->counters[i].status != status || strcmp(service->counters[i].path, path) != 0))
    ++i;
  if (i == service->n_counters && i < sizeof service->counters / sizeof *service->counters) {
    service->counters[service->n_counters++] = (struct counter){path, status, 0};
  }
  if (i < service->n_counters) ++service->counters[i].n;
  pthread_mutex_unlock(&service->mutex);
}

/* ---- Responses ---- */

static enum MHD_Result respond(struct MHD_Connection* connection, unsigned status, const char* type,
                               const char* body, size_t size) {
  struct MHD_Response* response =
      MHD_create_response_from_buffer(size, (void*)body, MHD_RESPMEM_MUST_COPY);
  if (response == NULL) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
  const enum MHD_Result result = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return result;
}

/* Takes the value. */
static enum MHD_Result respond_json(struct MHD_Connection* connection, unsigned status,
                                    json_t* value) {
  char* body = need(json_dumps(need(value), JSON_COMPACT));
  const enum MHD_Result result =
      respond(connection, status, "application/json", body, strlen(body));
  free(body);
  json_decref(value);
  return result;
}

/* Counts it, too. */
static enum MHD_Result refuse(struct service* service, struct MHD_Connection* connection,
                              const char* path, unsigned status, const char* why) {
  count(service, path, status);
  return respond_json(connection, status, json_pack("{s:s}", "error", why));
}

/* A call of the library failed: 400 if it was asked wrongly, otherwise 500. Frees the error. */
static enum MHD_Result refuse_error(struct service* service, struct MHD_Connection* connection,
                                    const char* path, blend_error* error) {
  const int32_t code = blend_error_code(error);
  const int asked_wrongly = code == BLEND_E_INVALID_ARGUMENT || code == BLEND_E_CONTEXT_LENGTH;
  const enum MHD_Result result =
      refuse(service, connection, path, asked_wrongly ? 400 : 500, blend_error_message(error));
  blend_error_free(error);
  return result;
}

/* ---- What is asked for ---- */

/* A text that must be there, or NULL. */
static const char* text_in(const json_t* body, const char* name) {
  const char* text = json_string_value(json_object_get(body, name));
  return text == NULL || *text == '\0' ? NULL : text;
}

/* A number above 0, `otherwise` where it is not given, 0 if it is invalid. */
static uint32_t number_in(const json_t* body, const char* name, uint32_t otherwise) {
  const json_t* value = json_object_get(body, name);
  if (value == NULL) return otherwise;
  const json_int_t number = json_integer_value(value); /* 0: not an integer */
  return number < 1 || number > 1000000 ? 0 : (uint32_t)number;
}

/* ---- POST /documents ---- */

static enum MHD_Result add_document(struct service* service, struct MHD_Connection* connection,
                                    const json_t* body) {
  const char* name = text_in(body, "name");
  const char* text = text_in(body, "text");
  struct chunks chunks = {0};
  blend_error* error = NULL;
  size_t stored = 0;
  if (name == NULL || text == NULL) {
    return refuse(service, connection, "/documents", 400,
                  "'name' and 'text' must be given, as strings");
  }
  int32_t code = cut_document(service->model, name, text, CHUNK_TOKENS, &chunks, &error);
  if (code >= 0) code = store_chunks(service->model, service->store, &chunks, &stored, &error);
  if (code < 0) {
    chunks_free(&chunks);
    return refuse_error(service, connection, "/documents", error);
  }
  const size_t n = chunks.n;
  int known = 0;
  pthread_mutex_lock(&service->mutex);
  for (size_t i = 0; i < service->n_names; ++i) known |= strcmp(service->names[i], name) == 0;
  if (!known) {
    service->names = need(realloc(service->names, (service->n_names + 1) * sizeof *service->names));
    service->names[service->n_names++] = need(strdup(name));
    chunks_move(&service->chunks, &chunks);
  }
  pthread_mutex_unlock(&service->mutex);
  chunks_free(&chunks);
  if (known) {
    return refuse(service, connection, "/documents", 409, "there is a document of that name");
  }
  count(service, "/documents", 200);
  return respond_json(connection, 200,
                      json_pack("{s:s, s:I, s:I}", "name", name, "chunks", (json_int_t)n, "stored",
                                (json_int_t)stored));
}

/* ---- POST /ask ---- */

/* An answer on its way: a thread generates, the connection's thread sends what there is. */
struct answer {
  struct service* service;
  blend_fusion* fusion;
  uint32_t max_tokens;
  pthread_t thread;
  struct text whole; /* of the generating thread */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct text events; /* server-sent; the first n_sent bytes are gone */
  size_t n_sent;
  int ended; /* no more events will come */
  int gone;  /* nobody listens any more */
};

/* Adds an event; takes the value. */
static void tell(struct answer* answer, const char* event, json_t* value) {
  char* data = need(json_dumps(need(value), JSON_COMPACT));
  json_decref(value);
  pthread_mutex_lock(&answer->mutex);
  if (event != NULL) text_print(&answer->events, "event: %s\n", event);
  text_print(&answer->events, "data: %s\n\n", data);
  pthread_cond_signal(&answer->changed);
  pthread_mutex_unlock(&answer->mutex);
  free(data);
}

static int32_t on_token(void* user, int32_t token, const char* text, size_t text_bytes) {
  struct answer* answer = user;
  (void)token;
  pthread_mutex_lock(&answer->mutex);
  const int gone = answer->gone;
  pthread_mutex_unlock(&answer->mutex);
  if (gone) return 1; /* stops the generation */
  text_add(&answer->whole, text, text_bytes);
  tell(answer, NULL, json_pack("{s:s%}", "text", text, text_bytes));
  return 0;
}

/* The account of an answer that is whole. Counted before its end is told: who reads /metrics next
 * finds it there. */
static void tell_done(struct answer* answer, const blend_fusion_info* info, size_t n_tokens) {
  struct service* service = answer->service;
  const double ttft = (double)info->ttft_ns;
  pthread_mutex_lock(&service->mutex);
  service->n_tokens += n_tokens;
  service->ttft_s += ttft / 1e9;
  ++service->n_answers;
  pthread_mutex_unlock(&service->mutex);
  count(service, "/ask", 200);
  text_strip(&answer->whole);
  tell(answer, "done",
       json_pack("{s:s, s:f, s:I, s:I, s:I}", "answer", answer->whole.data, "ttft_ms", ttft / 1e6,
                 "rows", (json_int_t)info->n_rows, "reused", (json_int_t)info->n_rows_reused,
                 "recomputed", (json_int_t)info->n_rows_selected));
}

static void* generate(void* user) {
  struct answer* answer = user;
  blend_generate_options options;
  blend_fusion_info info = {.struct_size = sizeof info};
  blend_error* error = NULL;
  size_t n_tokens = 0;
  blend_generate_options_init(&options, sizeof options);
  options.max_tokens = answer->max_tokens;
  int32_t code = blend_fusion_get_info(answer->fusion, &info, &error);
  if (code >= 0) {
    code = blend_fusion_generate(answer->fusion, &options, on_token, answer, &n_tokens, &error);
  }
  if (code >= 0) {
    tell_done(answer, &info, n_tokens);
  } else if (code == BLEND_E_CALLBACK) {
    count(answer->service, "/ask", 499);
  } else {
    count(answer->service, "/ask", 500);
    tell(answer, "error", json_pack("{s:s}", "error", blend_error_message(error)));
  }
  blend_error_free(error);
  pthread_mutex_lock(&answer->mutex);
  answer->ended = 1;
  pthread_cond_signal(&answer->changed);
  pthread_mutex_unlock(&answer->mutex);
  return NULL;
}

/* Called by libmicrohttpd: waits for the next bytes to send. */
static ssize_t send_some(void* user, uint64_t position, char* buffer, size_t room) {
  struct answer* answer = user;
  (void)position;
  pthread_mutex_lock(&answer->mutex);
  while (answer->events.size == answer->n_sent && !answer->ended) {
    pthread_cond_wait(&answer->changed, &answer->mutex);
  }
  const size_t left = answer->events.size - answer->n_sent;
  const size_t n = left < room ? left : room;
  if (n != 0) memcpy(buffer, answer->events.data + answer->n_sent, n);
  answer->n_sent += n;
  pthread_mutex_unlock(&answer->mutex);
  return n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)n;
}

/* Called by libmicrohttpd: all is sent, or the client is gone. */
static void end_answer(void* user) {
  struct answer* answer = user;
  pthread_mutex_lock(&answer->mutex);
  answer->gone = 1;
  pthread_mutex_unlock(&answer->mutex);
  pthread_join(answer->thread, NULL);
  blend_fusion_close(answer->fusion);
  pthread_cond_destroy(&answer->changed);
  pthread_mutex_destroy(&answer->mutex);
  text_free(&answer->whole);
  text_free(&answer->events);
  free(answer);
}

/* The prompt of a question, fused. The chunks' tokens stay where they are until the service ends,
 * so only finding them needs the mutex. */
static int32_t fuse(struct service* service, const char* question, uint32_t max_tokens, size_t top,
                    blend_fusion** fusion, blend_error** err) {
  struct prompt prompt = {0};
  blend_fuse_options options;
  pthread_mutex_lock(&service->mutex);
  if (top > service->chunks.n) top = service->chunks.n;
  size_t* places = need(malloc((top + 1) * sizeof *places));
  struct tokens* found = need(malloc((top + 1) * sizeof *found));
  const size_t n = best_chunks(&service->chunks, question, top, places);
  for (size_t i = 0; i < n; ++i) found[i] = service->chunks.items[places[i]].tokens;
  pthread_mutex_unlock(&service->mutex);
  int32_t code = make_prompt(service->model, found, n, question, &prompt, err);
  if (code >= 0) {
    blend_fuse_options_init(&options, sizeof options);
    options.reserve_tokens = max_tokens;
    code = blend_fuse(fusion, service->model, service->store, prompt.segments, prompt.n, &options,
                      err);
  }
  prompt_free(&prompt);
  free(places);
  free(found);
  return code;
}

static enum MHD_Result ask(struct service* service, struct MHD_Connection* connection,
                           const json_t* body) {
  const char* question = text_in(body, "question");
  const uint32_t max_tokens = number_in(body, "max_tokens", 32);
  const uint32_t top = number_in(body, "top", 6);
  blend_fusion* fusion = NULL;
  blend_error* error = NULL;
  if (question == NULL || max_tokens == 0 || top == 0) {
    return refuse(service, connection, "/ask", 400,
                  "'question' must be given, as a string; 'max_tokens' and 'top' are numbers above "
                  "0");
  }
  pthread_mutex_lock(&service->mutex);
  const int empty = service->chunks.n == 0;
  pthread_mutex_unlock(&service->mutex);
  if (empty) {
    return refuse(service, connection, "/ask", 404,
                  "there are no documents: POST /documents first");
  }
  /* Fused before the status is sent: what is wrong with a prompt has one of its own. */
  if (fuse(service, question, max_tokens, top, &fusion, &error) < 0) {
    return refuse_error(service, connection, "/ask", error);
  }
  struct answer* answer = need(calloc(1, sizeof *answer));
  answer->service = service;
  answer->fusion = fusion;
  answer->max_tokens = max_tokens;
  pthread_mutex_init(&answer->mutex, NULL);
  pthread_cond_init(&answer->changed, NULL);
  if (pthread_create(&answer->thread, NULL, generate, answer) != 0) {
    blend_fusion_close(fusion);
    free(answer);
    return refuse(service, connection, "/ask", 500, "no thread is to be had");
  }
  struct MHD_Response* response =
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, send_some, answer, end_answer);
  if (response == NULL) {
    end_answer(answer);
    return MHD_NO;
  }
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
  MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  const enum MHD_Result result = MHD_queue_response(connection, 200, response);
  MHD_destroy_response(response);
  return result;
}

/* ---- GET /metrics ---- */

static enum MHD_Result send_metrics(struct service* service, struct MHD_Connection* connection) {
  struct text text = {0};
  blend_error* error = NULL;
  char* figures = NULL;
  size_t size = 8192;
  int32_t code = BLEND_E_BUFFER_TOO_SMALL;
  while (code == BLEND_E_BUFFER_TOO_SMALL) {
    const size_t capacity = size + 256;
    blend_error_free(error);
    figures = need(realloc(figures, capacity));
    code = blend_store_get_metrics(service->store, "documents", figures, capacity, &size, &error);
  }
  if (code < 0) {
    free(figures);
    return refuse_error(service, connection, "/metrics", error);
  }
  count(service, "/metrics", 200);
  pthread_mutex_lock(&service->mutex);
  text_print(&text, "# TYPE blend_requests_total counter\n");
  for (size_t i = 0; i < service->n_counters; ++i) {
    const struct counter* counter = &service->counters[i];
    text_print(&text, "blend_requests_total{path=\"%s\",code=\"%u\"} %" PRIu64 "\n", counter->path,
               counter->status, counter->n);
  }
  text_print(&text,
             "# TYPE blend_tokens_total counter\nblend_tokens_total %" PRIu64
             "\n# TYPE blend_ttft_seconds summary\nblend_ttft_seconds_sum %g\n"
             "blend_ttft_seconds_count %" PRIu64 "\n",
             service->n_tokens, service->ttft_s, service->n_answers);
  pthread_mutex_unlock(&service->mutex);
  text_add(&text, figures, size);
  const enum MHD_Result result =
      respond(connection, 200, "text/plain; version=0.0.4", text.data, text.size);
  text_free(&text);
  free(figures);
  return result;
}

/* ---- The server ---- */

static enum MHD_Result serve(struct service* service, struct MHD_Connection* connection,
                             const char* method, const char* url, const struct request* request) {
  const int documents = strcmp(url, "/documents") == 0 && strcmp(method, "POST") == 0;
  const int asks = strcmp(url, "/ask") == 0 && strcmp(method, "POST") == 0;
  const char* path = documents ? "/documents" : asks ? "/ask" : "other";
  if (strcmp(url, "/metrics") == 0 && strcmp(method, "GET") == 0) {
    return send_metrics(service, connection);
  }
  if (!documents && !asks) {
    return refuse(service, connection, path, 404,
                  "there are POST /documents, POST /ask and GET /metrics");
  }
  if (request->too_large) {
    return refuse(service, connection, path, 413, "the body is larger than 4 MiB");
  }
  json_t* body = json_loadb(request->body.data, request->body.size, 0, NULL);
  const enum MHD_Result result = !json_is_object(body) ? refuse(service, connection, path, 400,
                                                                "the body is not a JSON object")
                                 : documents           ? add_document(service, connection, body)
                                                       : ask(service, connection, body);
  json_decref(body);
  return result;
}

/* Called by libmicrohttpd: once when a request begins, once for every part of its body, once at its
 * end. */
static enum MHD_Result handle(void* user, struct MHD_Connection* connection, const char* url,
                              const char* method, const char* version, const char* part,
                              size_t* part_size, void** state) {
  struct service* service = user;
  struct request* request = *state;
  (void)version;
  if (request == NULL) {
    *state = request = need(calloc(1, sizeof *request));
    text_add(&request->body, "", 0);
    pthread_mutex_lock(&service->mutex);
    ++service->n_active;
    pthread_mutex_unlock(&service->mutex);
    return MHD_YES;
  }
  if (*part_size != 0) {
    request->too_large |= request->body.size + *part_size > MAX_BODY;
    if (!request->too_large) text_add(&request->body, part, *part_size);
    *part_size = 0;
    return MHD_YES;
  }
  return serve(service, connection, method, url, request);
}

/* Called by libmicrohttpd: a request is answered, or its client is gone. */
static void completed(void* user, struct MHD_Connection* connection, void** state,
                      enum MHD_RequestTerminationCode why) {
  struct service* service = user;
  struct request* request = *state;
  (void)connection;
  (void)why;
  if (request == NULL) return;
  text_free(&request->body);
  free(request);
  *state = NULL;
  pthread_mutex_lock(&service->mutex);
  if (--service->n_active == 0) pthread_cond_signal(&service->idle);
  pthread_mutex_unlock(&service->mutex);
}

/* Serves until a signal comes; finishes what was begun. */
static int run(struct service* service, uint16_t port, const sigset_t* signals) {
  struct sockaddr_in address = {0};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct MHD_Daemon* daemon = MHD_start_daemon(
      MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, port, NULL,
      NULL, handle, service, MHD_OPTION_SOCK_ADDR, (struct sockaddr*)&address,
      MHD_OPTION_NOTIFY_COMPLETED, completed, service, MHD_OPTION_CONNECTION_TIMEOUT, 60u,
      MHD_OPTION_END);
  if (daemon == NULL) {
    fprintf(stderr, "port %u cannot be had\n", port);
    return -1;
  }
  printf("listening on http://127.0.0.1:%u\n",
         MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
  fflush(stdout);
  int signal_number = 0;
  sigwait(signals, &signal_number);
  const MHD_socket listening = MHD_quiesce_daemon(daemon);
  pthread_mutex_lock(&service->mutex);
  while (service->n_active != 0) pthread_cond_wait(&service->idle, &service->mutex);
  pthread_mutex_unlock(&service->mutex);
  MHD_stop_daemon(daemon);
  if (listening != MHD_INVALID_SOCKET) close(listening);
  return 0;
}

static int32_t on_log(void* user, const blend_log_record* record) {
  (void)user;
  fprintf(stderr, "%s\n", record->message);
  return 0;
}

int main(int argc, char** argv) {
  struct option options[] = {
      {"--model", EXAMPLES "/models/blend-qa.gguf"},
      {"--store", ""}, /* kept between runs; a temporary folder without it */
      {"--port", "8080"},
  };
  struct service service = {.mutex = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};
  blend_ctx_options ctx_options = {.struct_size = sizeof ctx_options};
  blend_ctx* ctx = NULL;
  blend_error* error = NULL;
  char* folder = NULL;
  int status = -1;

  if (parse_options(argc, argv, options, sizeof options / sizeof *options) != 0) return 2;
  const char* store = option(options, "--store");
  const unsigned long port = strtoul(option(options, "--port"), NULL, 10);
  if (port > UINT16_MAX) {
    fprintf(stderr, "%lu is no port\n", port);
    return 2;
  }
  /* Signals go to the one thread that waits for them. */
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  signal(SIGPIPE, SIG_IGN);

  ctx_options.log = on_log;
  if (*store == '\0') store = folder = temporary_folder();
  if (store == NULL) goto done;
  if (failed("context", blend_ctx_create(&ctx, &ctx_options, &error), &error)) goto done;
  if (failed("model",
             blend_model_open(&service.model, ctx, option(options, "--model"), NULL, &error),
             &error))
    goto done;
  if (failed("store", blend_store_open(&service.store, ctx, store, NULL, &error), &error))
    goto done;
  status = run(&service, (uint16_t)port, &signals);

done: /* any order, NULL included */
  blend_store_close(service.store);
  blend_model_close(service.model);
  blend_ctx_close(ctx);
  chunks_free(&service.chunks);
  for (size_t i = 0; i < service.n_names; ++i) free(service.names[i]);
  free(service.names);
  remove_folder(folder);
  return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
