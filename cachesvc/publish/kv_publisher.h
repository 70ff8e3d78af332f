// Publishes every event of the store over ZeroMQ, for routers that read vLLM's KV events. A message
// has three frames: the topic (kv_events_topic and the tenant's name), the tenant's number of the
// event as 8 bytes big endian, and kv_message(). Subscribers that ask for too many topics are
// disconnected, all of them. docs/guides/events.md has the whole contract.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/server/service.h"

namespace precis::publish {

// kInvalidArgument if config.kv_events is no address, or others than this machine could read it
// although kv_events_access is not "network".
Status check_config(const Config& config);

class KvPublisher {
 public:
  // Binds config.kv_events. kUnavailable if it cannot be bound.
  static Result<std::unique_ptr<KvPublisher>> start(const Config& config, Runtime& runtime);
  // Destroy it after the service has stopped running, and before the service and the runtime.
  ~KvPublisher();

  // Publishes the events of this service. Call it before the service runs.
  void serve(Service& service);
  const std::string& address() const;  // the bound address: "tcp://127.0.0.1:5557"

 private:
  struct Impl;
  explicit KvPublisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis::publish
