#include "cachesvc/base/metrics.h"

namespace precis {

std::vector<msg::Stat> Metrics::rows() const {
  std::vector<msg::Stat> out;
#define PRECIS_COUNTER(member, name, help) \
  out.push_back({name, static_cast<double>(member.load()), help});
#define PRECIS_GAUGE(member, name, help) \
  out.push_back({name, static_cast<double>(member.load()), help});
#include "cachesvc/base/metric_names.def"
#undef PRECIS_COUNTER
#undef PRECIS_GAUGE
  return out;
}

}  // namespace precis
