// Counters, gauges and histograms of one process, with labels or without, one member each,
// generated from the table in metric_names.def.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cachesvc/base/histogram.h"
#include "cachesvc/base/labeled.h"
#include "precis/messages.h"

namespace precis {

struct Metrics {
  using Value = std::atomic<std::int64_t>;
#define PRECIS_COUNTER(member, name, help) Value member{0};
#define PRECIS_GAUGE(member, name, help) Value member{0};
#define PRECIS_LABELED(member, name, help) Labeled<std::int64_t> member;
#define PRECIS_HISTOGRAM(member, name, help) Labeled<Histogram> member;
#include "cachesvc/base/metric_names.def"
#undef PRECIS_COUNTER
#undef PRECIS_GAUGE
#undef PRECIS_LABELED
#undef PRECIS_HISTOGRAM

  std::vector<msg::Stat> rows() const;  // of the counters and gauges

  // The metrics with labels. Loop thread only.
  template <typename Value>
  struct Family {
    std::string name, help;
    typename Labeled<Value>::Rows rows;
  };
  std::vector<Family<std::int64_t>> labeled() const;  // counters
  std::vector<Family<Histogram>> histograms() const;
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
