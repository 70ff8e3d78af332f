// The functions of librados that are used. The library is loaded when it is needed, so that a
// machine without Ceph runs the same program.
#pragma once

#include <rados/librados.h>

#include "precis/status.h"

namespace precis::rados {

// Without their prefix rados_. clang-format would indent each line further than the line before.
// clang-format off
#define PRECIS_RADOS_FUNCTIONS(X)                                                                \
  X(create2) X(conf_read_file) X(conf_set) X(conf_get) X(connect) X(shutdown) X(mon_command)     \
  X(buffer_free) X(ioctx_create) X(ioctx_destroy) X(ioctx_set_namespace) X(set_pool_full_try)    \
  X(remove) X(create_write_op) X(release_write_op) X(write_op_operate) X(write_op_create)        \
  X(write_op_write_full) X(write_op_setxattr) X(write_op_omap_cmp2) X(write_op_omap_set2)        \
  X(write_op_omap_rm_keys2) X(create_read_op) X(release_read_op) X(read_op_operate)              \
  X(read_op_stat) X(read_op_read) X(read_op_cmpxattr) X(read_op_omap_get_vals2)                  \
  X(read_op_omap_get_vals_by_keys2) X(omap_get_next2) X(omap_get_end) X(nobjects_list_open)      \
  X(nobjects_list_next) X(nobjects_list_close)
// clang-format on

struct RadosLibrary {
#define PRECIS_RADOS_FUNCTION(name) decltype(&::rados_##name) name = nullptr;
  PRECIS_RADOS_FUNCTIONS(PRECIS_RADOS_FUNCTION)
#undef PRECIS_RADOS_FUNCTION
};

// kUnsupported if this machine has no librados, or one that lacks a function. The library stays
// loaded until the process ends.
Result<RadosLibrary> load_rados();

}  // namespace precis::rados
