#include "cachesvc/net/rdma/uct.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

namespace precis {
namespace {

// Prevents what UCX does to its host process when it is loaded: it would replace the crash handlers
// of the debugger and Python, turn on its debug log on SIGHUP, patch mmap and madvise, and print
// its log to stdout. Variables that the operator has set stay unchanged.
void tame() {
  ::setenv("UCX_HANDLE_ERRORS", "none", 0);
  ::setenv("UCX_DEBUG_SIGNO", "0", 0);
  ::setenv("UCX_MEM_EVENTS", "no", 0);
  ::setenv("UCX_LOG_LEVEL", "fatal", 0);
  ::setenv("UCX_WARN_UNUSED_ENV_VARS", "no", 0);
  ::setenv("UCX_VFS_ENABLE", "no", 0);  // else it listens for debuggers on its own socket
}

Result<Uct> load_now() {
  tame();
  const std::string name = std::string(PRECIS_UCX_LIBRARY);
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return Status::unsupported("UCX can't be loaded: " + std::string(why ? why : name));
  }
  Uct uct;
  std::string missing;
#define PRECIS_UCT_LOAD(call)                                               \
  uct.call = reinterpret_cast<decltype(uct.call)>(::dlsym(library, #call)); \
  if (uct.call == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#call);
  PRECIS_UCT_CALLS(PRECIS_UCT_LOAD)
#undef PRECIS_UCT_LOAD
  if (!missing.empty()) {
    return Status::unsupported(name + " lacks " + missing + "; it is not UCX 1.13 or newer");
  }
  link_map* map = nullptr;
  uct.library = ::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : name;
  return uct;
}

}  // namespace

Result<const Uct*> Uct::load() {
  static const Result<Uct> loaded = load_now();  // once per process, as it changes the process
  PRECIS_TRY(loaded.status());
  return &*loaded;
}

Status Uct::to_status(ucs_status_t status, std::string_view what) const {
  if (status == UCS_OK) return {};
  std::string message = std::string(what) + ": " + ucs_status_string(status);
  switch (status) {
    case UCS_ERR_CANCELED: return Status::canceled(std::move(message));
    case UCS_ERR_TIMED_OUT: return Status::timed_out(std::move(message));
    case UCS_ERR_NO_MEMORY: return Status::out_of_space(std::move(message));
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR: return Status::invalid(std::move(message));
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED: return Status::unsupported(std::move(message));
    default: return Status::unavailable(std::move(message));
  }
}

}  // namespace precis
