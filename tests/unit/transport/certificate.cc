#include "tests/unit/transport/certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <utility>

namespace precis::test {

TlsFiles make_certificate(const std::string& folder) {
  static long serial = 0;
  EVP_PKEY* const key = ::EVP_EC_gen("P-256");
  X509* const cert = ::X509_new();
  ::X509_set_version(cert, 2);
  ::ASN1_INTEGER_set(::X509_get_serialNumber(cert), ++serial);
  ::X509_gmtime_adj(::X509_getm_notBefore(cert), -60);
  ::X509_gmtime_adj(::X509_getm_notAfter(cert), 3600);
  ::X509_set_pubkey(cert, key);
  X509_NAME* const name = ::X509_get_subject_name(cert);
  ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("precis test"), -1, -1, 0);
  ::X509_set_issuer_name(cert, name);
  for (const auto& [kind, value] : {std::pair(NID_subject_alt_name, "IP:127.0.0.1"),
                                    std::pair(NID_basic_constraints, "critical,CA:TRUE")}) {
    X509_EXTENSION* const extension = ::X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
    ::X509_add_ext(cert, extension, -1);
    ::X509_EXTENSION_free(extension);
  }
  ::X509_sign(cert, key, ::EVP_sha256());
  const TlsFiles made{folder + "/cert.pem", folder + "/key.pem", folder + "/cert.pem"};
  FILE* file = std::fopen(made.cert.c_str(), "w");
  ::PEM_write_X509(file, cert);
  std::fclose(file);
  file = std::fopen(made.key.c_str(), "w");
  ::PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  ::X509_free(cert);
  ::EVP_PKEY_free(key);
  return made;
}

}  // namespace precis::test
