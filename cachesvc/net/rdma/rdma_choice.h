// The parsed setting `rdma`.
#pragma once

#include <string>
#include <vector>

namespace precis {

struct RdmaChoice {
  bool is_on = false;                // false: "off", or "auto" on a host without a device
  std::vector<std::string> devices;  // empty: any device
  bool names(const std::string& device) const;  // device: "mlx5_0:1", in UCX's form
};

// Parses "auto", "off" or a list separated by commas. "auto" looks for devices in `sysfs`.
RdmaChoice parse_rdma(const std::string& choice,
                      const std::string& sysfs = "/sys/class/infiniband");

}  // namespace precis
