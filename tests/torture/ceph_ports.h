// The ports that OSDs choose from: Ceph's ms_bind_port_min and ms_bind_port_max, by default.
#pragma once

namespace precis::torture {

inline constexpr int kOsdPortFirst = 6800, kOsdPortLast = 7300;

}  // namespace precis::torture
