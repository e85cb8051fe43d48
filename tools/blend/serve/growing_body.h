// A body as a string that grows as bytes come: an announced length takes no memory.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <string>

namespace blend_cli::serve {

// A Body as Boost.Beast's parsers want it.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool kIsRequest, typename Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>&, std::string& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::beast::error_code& error) { error = {}; }
    template <typename Buffers>
    size_t put(const Buffers& buffers, boost::beast::error_code& error) {
      error = {};
      size_t n = 0;
      const auto end = boost::asio::buffer_sequence_end(buffers);
      for (auto it = boost::asio::buffer_sequence_begin(buffers); it != end; ++it) {
        const boost::asio::const_buffer part = *it;
        body_.append(static_cast<const char*>(part.data()), part.size());
        n += part.size();
      }
      return n;
    }
    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    std::string& body_;
  };
};

}  // namespace blend_cli::serve
