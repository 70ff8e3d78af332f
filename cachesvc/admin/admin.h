// The admin port of precisd: metrics, probes, the API and the page for operators, over HTTP on a
// thread of its own. docs/design/admin.md describes it.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/server/service.h"

namespace precis::admin {

// kInvalidArgument if config.admin is no address, or others than this machine could use the port
// without a token or a certificate.
Status check_config(const Config& config);

class Admin {
 public:
  // Listens on config.admin, with TLS if the configuration names files for it; kInvalidArgument if
  // one of them cannot be used. Until serve(), only /healthz, the description of the API and the
  // files of the page are answered with success.
  static Result<std::unique_ptr<Admin>> start(const Config& config, Runtime& runtime);
  // Destroy it before the service and before the runtime.
  ~Admin();

  // Answers for this service from now on. Call it before the service runs, or while it does.
  void serve(Service& service);
  const std::string& address() const;  // the bound address

 private:
  struct Impl;
  explicit Admin(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis::admin
