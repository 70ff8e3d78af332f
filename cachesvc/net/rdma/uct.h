// UCX's functions, loaded on first use: UCX's libraries take over signals and patch libc as soon as
// a process loads them, and most processes do not need them.
#pragma once

#include <ucs/async/async_fwd.h>
#include <uct/api/uct.h>

#include <string>
#include <string_view>

#include "precis/status.h"

namespace precis {

// clang-format would indent each of these lines further than the line before.
// clang-format off
#define PRECIS_UCT_CALLS(X)                                                                       \
  X(ucs_status_string) X(ucs_async_context_create) X(ucs_async_context_destroy)                   \
  X(uct_query_components) X(uct_release_component_list) X(uct_component_query)                    \
  X(uct_md_config_read) X(uct_md_open) X(uct_md_close) X(uct_md_query)                            \
  X(uct_md_query_tl_resources) X(uct_release_tl_resource_list) X(uct_md_mem_reg)                  \
  X(uct_md_mem_dereg) X(uct_md_mkey_pack) X(uct_rkey_unpack) X(uct_rkey_release)                  \
  X(uct_md_iface_config_read) X(uct_config_modify) X(uct_config_release) X(uct_worker_create)     \
  X(uct_worker_destroy) X(uct_iface_open) X(uct_iface_close) X(uct_iface_query)                   \
  X(uct_iface_get_address) X(uct_iface_get_device_address) X(uct_iface_is_reachable)              \
  X(uct_iface_event_fd_get) X(uct_iface_event_arm) X(uct_ep_create) X(uct_ep_destroy)             \
  X(uct_ep_get_address) X(uct_ep_connect_to_ep)
// clang-format on

struct Uct {
#define PRECIS_UCT_MEMBER(name) decltype(&::name) name = nullptr;
  PRECIS_UCT_CALLS(PRECIS_UCT_MEMBER)
#undef PRECIS_UCT_MEMBER
  std::string library;  // the path it was loaded from

  // Returns the process's functions, loaded once. kUnsupported if UCX's libraries are missing or
  // lack a function.
  static Result<const Uct*> load();

  // Returns a Status with the message "`what`: <UCX's message>", or OK for UCS_OK.
  Status to_status(ucs_status_t status, std::string_view what) const;
};

}  // namespace precis
