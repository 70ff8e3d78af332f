// What the setting `rdma` asks for.
#pragma once

#include <string>
#include <vector>

namespace precis {

struct RdmaChoice {
  bool is_on = false;                // false: "off", or "auto" on a host without a device
  std::vector<std::string> devices;  // named ones; empty: any
  bool names(const std::string& device) const;  // "mlx5_0:1", as UCX calls it
};

// "auto", "off" or a list with commas. "auto" looks into `sysfs`.
RdmaChoice parse_rdma(const std::string& choice,
                      const std::string& sysfs = "/sys/class/infiniband");

}  // namespace precis
