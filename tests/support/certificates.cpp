#include "support/certificates.h"

#include <cstdlib>

namespace blend::test {

bool Certificates::make() const {
  const std::string script =
      "cd " + directory.path() +
      " && exec >/dev/null 2>&1 && "
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem "
      "&& "
      "for n in server client; do "
      "openssl req -newkey rsa:2048 -nodes -subj /CN=$n -keyout $n.key -out $n.csr && "
      "printf 'subjectAltName=IP:127.0.0.1,DNS:localhost' > ext && "
      "openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
      "-extfile ext -out $n.pem || exit 1; done; "
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout o.key -out "
      "other.pem";
  return std::system(script.c_str()) == 0;
}

bool Certificates::make_misfits() const {
  // What `openssl x509 -days` cannot say, a day that is over, `openssl ca` can.
  const std::string script =
      "cd " + directory.path() +
      " && exec >/dev/null 2>&1 && mkdir -p db && : > db/index && echo 77 > db/serial && "
      "printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=db/index\\nserial=db/serial\\n"
      "new_certs_dir=db\\ndefault_md=sha256\\npolicy=p\\n[p]\\ncommonName=supplied\\n' > ca.cnf && "
      "printf 'subjectAltName=IP:127.0.0.1,DNS:localhost' > ext && "
      "openssl ca -batch -config ca.cnf -cert ca.pem -keyfile ca.key -in server.csr -extfile ext "
      "-startdate 20200101000000Z -enddate 20200102000000Z -out expired.pem && "
      "printf 'subjectAltName=IP:127.0.0.9,DNS:elsewhere.example' > ext && "
      "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
      "-extfile ext -out elsewhere.pem";
  return std::system(script.c_str()) == 0;
}

std::vector<std::string> Certificates::of_server() const {
  return {"--tls-cert-file",    file("server.pem"), "--tls-key-file",     file("server.key"),
          "--tls-ca-cert-file", file("ca.pem"),     "--tls-auth-clients", "yes"};
}

}  // namespace blend::test
