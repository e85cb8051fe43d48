// Certificates for servers and clients on loopback, by openssl(1): of an authority of their own,
// and of one that nobody knows.
#pragma once

#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace blend::test {

struct Certificates {
  TempDir directory;
  // ca.pem, server.pem and .key, client.pem and .key, other.pem: the stranger's authority.
  std::string file(const std::string& name) const { return directory.file(name); }
  bool make() const;  // false: openssl cannot
  // By the same authority: expired.pem, whose days are over, and elsewhere.pem, of another host;
  // for server.key.
  bool make_misfits() const;
  // redis-server's arguments; its clients need a certificate, too.
  std::vector<std::string> of_server() const;
};

}  // namespace blend::test
