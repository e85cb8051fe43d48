#include "store/remote/client/tls/openssl.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>

namespace blend {
namespace {

constexpr size_t kReadBufferBytes = 128u << 10;

// What OpenSSL has to say last, and nothing is left of it.
std::string reason() {
  const unsigned long code = ERR_peek_last_error();
  char text[256] = "no reason given";
  if (code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

// ---- A socket without SIGPIPE: OpenSSL's own writes with write(2).

int write_to_socket(BIO* bio, const char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = send(static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))), data,
                         static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    BIO_set_retry_write(bio);
  return static_cast<int>(n);
}

int read_from_socket(BIO* bio, char* out, int bytes) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = recv(static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))), out,
                         static_cast<size_t>(bytes), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(n);
}

long control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

using Method = std::unique_ptr<BIO_METHOD, void (*)(BIO_METHOD*)>;
Method make_method() {
  Method method(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "blend socket"),
                BIO_meth_free);
  if (method == nullptr || BIO_meth_set_write(method.get(), write_to_socket) != 1 ||
      BIO_meth_set_read(method.get(), read_from_socket) != 1 ||
      BIO_meth_set_ctrl(method.get(), control_socket) != 1) {
    return {nullptr, BIO_meth_free};
  }
  return method;
}

using Ssl = std::unique_ptr<SSL, void (*)(SSL*)>;
using SslContext = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;

// What both directions wait for. `result` of an SSL_ call that did not succeed.
Status wait_for_tls(SSL* ssl, int fd, int result, SteadyTime deadline, const char* what) {
  const int error = SSL_get_error(ssl, result);
  if (error == SSL_ERROR_WANT_READ) return wait_for_socket(fd, POLLIN, deadline);
  if (error == SSL_ERROR_WANT_WRITE) return wait_for_socket(fd, POLLOUT, deadline);
  if (error == SSL_ERROR_ZERO_RETURN) {
    return {BLEND_E_IO, "the server closed the connection", ECONNRESET};
  }
  const long verified = SSL_get_verify_result(ssl);
  if (verified != X509_V_OK) {
    return make_error(BLEND_E_IO, "TLS: the server's certificate: %s",
                      X509_verify_cert_error_string(verified));
  }
  return make_error(BLEND_E_IO, "TLS: %s: %s", what, reason().c_str());
}

// As Stream says, through TLS.
class TlsStream final : public Stream {
 public:
  TlsStream(Socket socket, Ssl ssl) : socket_(std::move(socket)), ssl_(std::move(ssl)) {}

  Result<size_t> read(std::byte* out, size_t bytes, SteadyTime deadline) override {
    for (;;) {
      size_t n = 0;
      ERR_clear_error();
      const int rc = SSL_read_ex(ssl_.get(), out, bytes, &n);
      if (rc == 1) return n;
      BLEND_RETURN_IF_ERROR(
          wait_for_tls(ssl_.get(), socket_.get(), rc, deadline, "cannot receive"));
    }
  }

  Status write(std::span<iovec> parts, SteadyTime deadline) override {
    for (iovec& part : parts) {
      while (part.iov_len > 0) {
        size_t n = 0;
        ERR_clear_error();
        const int rc = SSL_write_ex(ssl_.get(), part.iov_base, part.iov_len, &n);
        if (rc != 1) {
          BLEND_RETURN_IF_ERROR(
              wait_for_tls(ssl_.get(), socket_.get(), rc, deadline, "cannot send"));
          continue;
        }
        part.iov_base = static_cast<char*>(part.iov_base) + n;
        part.iov_len -= n;
      }
    }
    return Status::ok();
  }

  void shut() noexcept override { (void)shutdown(socket_.get(), SHUT_RDWR); }

 private:
  const Socket socket_;
  const Ssl ssl_;
};

class OpensslContext final : public TlsContext {
 public:
  OpensslContext(SslContext context, Method method)
      : context_(std::move(context)), method_(std::move(method)) {}

  Result<std::unique_ptr<Stream>> connect(Socket socket, const std::string& host,
                                          SteadyTime deadline) const override {
    ERR_clear_error();
    Ssl ssl(SSL_new(context_.get()), SSL_free);
    BIO* const bio = ssl == nullptr ? nullptr : BIO_new(method_.get());
    if (bio == nullptr) return Status::out_of_memory();
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket.get())));  // NOLINT
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl.get(), bio, bio);
    unsigned char address[sizeof(in6_addr)];
    const bool is_address = inet_pton(AF_INET, host.c_str(), address) == 1 ||
                            inet_pton(AF_INET6, host.c_str(), address) == 1;
    const bool set =
        is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str()) == 1
                   : SSL_set1_host(ssl.get(), host.c_str()) == 1 &&
                         SSL_set_tlsext_host_name(ssl.get(), host.c_str()) == 1;
    if (!set) return make_error(BLEND_E_IO, "TLS: '%s' is no host name", host.c_str());
    for (;;) {
      const int rc = SSL_connect(ssl.get());
      if (rc == 1) break;
      BLEND_RETURN_IF_ERROR(wait_for_tls(ssl.get(), socket.get(), rc, deadline, "no handshake"));
    }
    return std::unique_ptr<Stream>(std::make_unique<TlsStream>(std::move(socket), std::move(ssl)));
  }

 private:
  const SslContext context_;
  const Method method_;
};

Status refuse(const char* what, const char* file) {
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s '%s' cannot be used: %s", what, file,
                    reason().c_str());
}

}  // namespace

Result<std::unique_ptr<TlsContext>> make_openssl_context(const TlsModuleRequest& request) {
  ERR_clear_error();
  SslContext context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  Method method = make_method();
  if (context == nullptr || method == nullptr) return Status::out_of_memory();
  (void)SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  // Writes of a value may end and go on anywhere.
  (void)SSL_CTX_set_mode(context.get(),
                         SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Several records at a time from the socket, rather than a head and a record.
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadBufferBytes);
  if (*request.ca_file == '\0') {
    if (SSL_CTX_set_default_verify_paths(context.get()) != 1) {
      return refuse("the system's certificates", "");
    }
  } else if (SSL_CTX_load_verify_locations(context.get(), request.ca_file, nullptr) != 1) {
    return refuse("remote_ca", request.ca_file);
  }
  if (*request.certificate_file != '\0') {
    if (SSL_CTX_use_certificate_chain_file(context.get(), request.certificate_file) != 1) {
      return refuse("remote_certificate", request.certificate_file);
    }
    if (SSL_CTX_use_PrivateKey_file(context.get(), request.key_file, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context.get()) != 1) {
      return refuse("remote_key", request.key_file);
    }
  }
  return std::unique_ptr<TlsContext>(
      std::make_unique<OpensslContext>(std::move(context), std::move(method)));
}

}  // namespace blend
