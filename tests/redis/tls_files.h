// Certificates and keys of a test, which the openssl command makes in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace kvt {

class TlsFiles {
 public:
  TlsFiles() {
    folder_ = std::filesystem::temp_directory_path() / "kvc-tls-XXXXXX";
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    make_certificate("ca", "");
  }
  ~TlsFiles() { std::filesystem::remove_all(folder_); }
  TlsFiles(const TlsFiles &) = delete;
  TlsFiles &operator=(const TlsFiles &) = delete;

  // NAME.pem is a certificate and NAME.key its key. names: "DNS:host,IP:127.0.0.1". Without `authority` it signs
  // itself. days: from now; -1 = the certificate has expired.
  void make_certificate(const std::string &name, const std::string &names, const std::string &authority = "",
                        int days = 2) {
    const std::string certificate = path(name + ".pem"), request = path(name + ".csr"),
                      until = " -days " + std::to_string(days) + " -out " + certificate;
    std::string create = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" + name + " -keyout " +
                         path(name + ".key");
    if (!names.empty()) create += " -addext subjectAltName=" + names;
    if (authority.empty()) return run(create + " -x509" + until);
    run(create + " -out " + request);
    run("x509 -req -copy_extensions copy -in " + request + " -CA " + path(authority + ".pem") + " -CAkey " +
        path(authority + ".key") + until);
  }
  void run(const std::string &command) {
    EXPECT_EQ(std::system((OPENSSL_COMMAND " " + command + " > " + path("log") + " 2>&1").c_str()), 0) << command;
  }
  std::string path(const std::string &file) const { return folder_ + "/" + file; }
  // Of a server with this certificate, which demands none of its clients.
  std::vector<std::string> server_options(const std::string &name, const std::string &demand = "no") const {
    return {"--tls-cert-file",    path(name + ".pem"), "--tls-key-file",     path(name + ".key"),
            "--tls-ca-cert-file", path("ca.pem"),      "--tls-auth-clients", demand};
  }

 private:
  std::string folder_;
};

}  // namespace kvt
