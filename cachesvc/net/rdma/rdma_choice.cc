#include "cachesvc/net/rdma/rdma_choice.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace precis {

bool RdmaChoice::names(const std::string& device) const {
  return devices.empty() || std::ranges::any_of(devices, [&](const std::string& named) {
           return device == named || device.starts_with(named + ":");
         });
}

RdmaChoice parse_rdma(const std::string& choice, const std::string& sysfs) {
  RdmaChoice parsed;
  if (choice == "off") return parsed;
  if (choice == "auto" || choice.empty()) {
    std::error_code failed;
    const std::filesystem::directory_iterator found(sysfs, failed);
    parsed.is_on = !failed && found != std::filesystem::directory_iterator();
    return parsed;
  }
  parsed.is_on = true;
  std::istringstream list(choice);
  for (std::string name; std::getline(list, name, ',');) {
    std::erase(name, ' ');
    if (!name.empty()) parsed.devices.push_back(name);
  }
  return parsed;
}

}  // namespace precis
