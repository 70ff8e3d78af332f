// Sends the spans of traced requests to a collector, in OTLP's JSON over HTTP, from a thread of its
// own. docs/design/traces.md has the whole contract.
#pragma once

#include <memory>

#include "cachesvc/base/config.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/server/service.h"

namespace precis::trace {

// kInvalidArgument if config.otlp_endpoint is no URL of the right form.
Status check_config(const Config& config);

class SpanExporter {
 public:
  // Starts to export the spans of this service, whose configuration check_config() has approved.
  // Call it before the service runs. Null without otlp_endpoint.
  static std::unique_ptr<SpanExporter> start(const Config& config, Runtime& runtime,
                                             Service& service);
  // Sends one last batch, if that takes at most limits::kSpanLastPostSeconds. Destroy it after the
  // service has stopped running, and before the service.
  ~SpanExporter();

 private:
  struct Impl;
  explicit SpanExporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis::trace
