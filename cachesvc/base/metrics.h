// Counters, gauges and histograms of one process, one member each, generated from the table in
// metric_names.def.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cachesvc/base/histogram.h"
#include "precis/messages.h"

namespace precis {

struct Metrics {
  using Value = std::atomic<std::int64_t>;
#define PRECIS_COUNTER(member, name, help) Value member{0};
#define PRECIS_GAUGE(member, name, help) Value member{0};
#define PRECIS_HISTOGRAM(member, name, help) TenantHistograms member;
#include "cachesvc/base/metric_names.def"
#undef PRECIS_COUNTER
#undef PRECIS_GAUGE
#undef PRECIS_HISTOGRAM

  std::vector<msg::Stat> rows() const;  // of the counters and gauges

  struct HistogramRow {
    std::string name, help;
    TenantHistograms::Rows tenants;
  };
  std::vector<HistogramRow> histograms() const;  // loop thread only
};

// Adds `amount` to a gauge for the lifetime of this object.
class GaugeHold {
 public:
  GaugeHold(Metrics::Value& gauge, std::int64_t amount) : gauge_(&gauge), amount_(amount) {
    *gauge_ += amount_;
  }
  GaugeHold(const GaugeHold&) = delete;
  GaugeHold& operator=(const GaugeHold&) = delete;
  ~GaugeHold() { *gauge_ -= amount_; }

 private:
  Metrics::Value* gauge_;
  std::int64_t amount_;
};

}  // namespace precis
