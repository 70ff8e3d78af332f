// The metrics in Prometheus' text format.
#pragma once

#include <span>
#include <string>

#include "cachesvc/server/operator_access.h"

namespace precis::admin {

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

// A metric is a counter if its name ends in _total, else a gauge. Those of stored data have the
// label `tenant`, the segments of each model the labels `tenant`, `model` and `fingerprint`. Those
// of requests have the labels of RequestLabels that are not empty, and precis_build_info has the
// label `version`.
std::string metrics_text(const OperatorAccess::Monitored& process,
                         std::span<const OperatorAccess::Stored> tenants);

}  // namespace precis::admin
