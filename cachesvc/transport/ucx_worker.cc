#include "cachesvc/transport/ucx_worker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "cachesvc/transport/preface_io.h"
#include "cachesvc/transport/ucx_pages.h"
#include "cachesvc/transport/ucx_status.h"

namespace precis {

// One UCX call under way and what must live as long as it.
struct UcxOperation {
  UcxDone done;
  std::array<std::byte, AmHeader::kBytes> header{};
  std::vector<ucp_dt_iov_t> ranges;

  static void finish(UcxOperation* operation, ucs_status_t status) {
    const std::unique_ptr<UcxOperation> owned(operation);
    owned->done(status);
  }
  static void on_sent(void* request, ucs_status_t status, void* operation) {
    ucp_request_free(request);
    finish(static_cast<UcxOperation*>(operation), status);
  }
  static void on_received(void* request, ucs_status_t status, std::size_t, void* operation) {
    on_sent(request, status, operation);
  }
};

namespace {

constexpr unsigned kActiveMessageId = 0;

// Of closed endpoints a worker waits for before it goes: each needs a few rounds.
constexpr int kCloseRoundsMax = 100'000;

// What UCX does to its host process by default, undone: it is a library here, also within programs
// that are not ours. What the user's environment says about UCX stays as it is. One thing only the
// environment can undo, as UCX does it when it is loaded: UCX_MEM_EVENTS=n keeps it from patching
// mmap and madvise in libc, which ThreadSanitizer does not survive.
void tame_ucx_once() {
  // It writes its log to stdout, where programs print results. Its errors reach us as statuses.
  if (getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  // Its handlers for crashes replace the debugger's, the sanitizers' and Python's.
  if (getenv("UCX_ERROR_SIGNALS") == nullptr && getenv("UCX_HANDLE_ERRORS") == nullptr) {
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
  }
}

void tame_ucx() {
  static std::once_flag once;  // what it changes is the process's, too
  std::call_once(once, tame_ucx_once);
}

// All but shared memory. Within one host, UCX's senders write straight into the receiver's queue:
// one that is killed between taking a place there and filling it stops that queue for everyone
// (uct_mm_ep_am_common_send, seen with a client under SIGKILL), and one that goes mad damages a
// process that is not its own. Its copies between processes (cma, knem, xpmem) believe the peer's
// word about which process it is, where host_copy.h asks for proof.
constexpr const char* kTransports = "^posix,sysv,cma,knem,xpmem";

// Up to here a message goes at once, 32K tokens of a path too: to ask the receiver first takes each
// side another wakeup, which is longer than the copy that it saves. Of a message that is not whole
// yet UCX keeps what has come, of each connection's.
constexpr const char* kEagerBytes = "144k";

// What `print` writes.
template <typename Print>
std::string printed(const Print& print) {
  char* text = nullptr;
  std::size_t size = 0;
  FILE* stream = open_memstream(&text, &size);
  if (stream == nullptr) return {};
  print(stream);
  fclose(stream);
  std::string all(text, size);
  free(text);
  return all;
}

// The transports that UCX finds on the devices of `config`, whose TLS it changes.
std::string transports_here(ucp_config_t* config) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM;
  ucp_context_h context = nullptr;
  if (ucp_config_modify(config, "TLS", "all") != UCS_OK ||
      ucp_init(&params, config, &context) != UCS_OK) {
    return "none";
  }
  std::istringstream lines(printed([&](FILE* to) { ucp_context_print_info(context, to); }));
  ucp_cleanup(context);
  std::set<std::string> names;
  for (std::string line; std::getline(lines, line);) {  // "# resource 1 : md 1 dev 1 ... tcp/lo"
    if (line.find(" resource ") == std::string::npos) continue;
    const std::string resource = line.substr(line.rfind(' ') + 1);
    names.insert(resource.substr(0, resource.find('/')));
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

struct ConfigRelease {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};

ucp_request_param_t callback_param(UcxOperation* operation) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.cb.send = &UcxOperation::on_sent;
  param.user_data = operation;
  return param;
}

void submit(ucs_status_ptr_t request, UcxOperation* operation) {
  if (request == nullptr) return UcxOperation::finish(operation, UCS_OK);
  if (UCS_PTR_IS_ERR(request)) UcxOperation::finish(operation, UCS_PTR_STATUS(request));
}

}  // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::create(EventLoop& loop, const UcxOptions& options,
                                                     std::function<void(UcxInbound)> on_message) {
  std::unique_ptr<UcxWorker> worker(new UcxWorker(loop, options.spin, std::move(on_message)));
  PRECIS_TRY(worker->start(options));
  PRECIS_TRY(worker->start_worker());
  return worker;
}

Status UcxWorker::start(const UcxOptions& options) {
  tame_ucx();
  ucp_config_t* read = nullptr;
  PRECIS_TRY(to_status(ucp_config_read(nullptr, nullptr, &read), "read UCX's configuration"));
  const std::unique_ptr<ucp_config_t, ConfigRelease> config(read);
  const auto set = [&](const char* name, const std::string& value) {
    return to_status(ucp_config_modify(read, name, value.c_str()),
                     std::string("set UCX_") + name + " to '" + value + "'");
  };
  if (!options.transports.empty()) {
    PRECIS_TRY(set("TLS", options.transports == "tcp" ? "tcp,self" : options.transports));
  } else if (getenv("UCX_TLS") == nullptr) {
    PRECIS_TRY(set("TLS", kTransports));
  }
  if (getenv("UCX_RNDV_THRESH") == nullptr) PRECIS_TRY(set("RNDV_THRESH", kEagerBytes));
  if (is_loopback(options.address)) PRECIS_TRY(set("NET_DEVICES", "lo"));
  // The TCP connection beside the link is the sign of life; registrations are not cached, see
  // above.
  PRECIS_TRY(set("KEEPALIVE_INTERVAL", "inf"));
  PRECIS_TRY(set("RCACHE_ENABLE", "n"));

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // register_memory() comes from any thread
  const ucs_status_t started = ucp_init(&params, read, &context_);
  if (started == UCS_ERR_NO_DEVICE && !options.transports.empty()) {
    const std::string where = options.address.empty() ? "" : " for " + options.address;
    return Status::unsupported("transports '" + options.transports + "': UCX finds none of them" +
                               where + ", be it for the word or for want of hardware; it finds " +
                               transports_here(read));
  }
  return to_status(started, "start UCX with transports '" + options.transports + "'");
}

Status UcxWorker::start_worker() {
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  PRECIS_TRY(
      to_status(ucp_worker_create(context_, &worker_params, &worker_), "create a UCX worker"));

  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kActiveMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &UcxWorker::on_active_message;
  handler.arg = this;
  PRECIS_TRY(
      to_status(ucp_worker_set_am_recv_handler(worker_, &handler), "receive UCX active messages"));

  ucp_address_t* address = nullptr;
  std::size_t address_bytes = 0;
  PRECIS_TRY(to_status(ucp_worker_get_address(worker_, &address, &address_bytes),
                       "get the UCX worker's address"));
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  address_.assign(bytes, bytes + address_bytes);
  ucp_worker_release_address(worker_, address);

  int fd = -1;
  PRECIS_TRY(to_status(ucp_worker_get_efd(worker_, &fd), "get the UCX worker's descriptor"));
  poller_ = loop_.add_poller({.fd = fd,
                              .progress = [this] { return progress(); },
                              .arm = [this] { return ucp_worker_arm(worker_) == UCS_OK; },
                              .spin = spin_});
  return {};
}

void UcxWorker::stop_worker() {
  poller_.reset();
  for (int round = 0; closing_ > 0 && round < kCloseRoundsMax; ++round) progress();
  if (worker_ != nullptr) ucp_worker_destroy(std::exchange(worker_, nullptr));
}

Status UcxWorker::renew() {
  stop_worker();
  return start_worker();
}

UcxWorker::~UcxWorker() {
  stop_worker();
  if (context_ != nullptr) ucp_cleanup(context_);
}

UcxMemory::UcxMemory(ucp_context_h context, MutableBytes bytes, ucp_mem_h handle, std::string key,
                     std::unique_ptr<UcxPages> pages)
    : context_(context),
      bytes_(bytes),
      handle_(handle),
      key_(std::move(key)),
      pages_(std::move(pages)) {}

UcxMemory::~UcxMemory() { ucp_mem_unmap(context_, handle_); }

Result<std::unique_ptr<UcxMemory>> UcxWorker::map(MutableBytes memory,
                                                  std::unique_ptr<UcxPages> pages) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory.data();
  params.length = memory.size();
  ucp_mem_h handle = nullptr;
  const std::string what = "register " + std::to_string(memory.size()) + " B with UCX";
  PRECIS_TRY(to_status(ucp_mem_map(context_, &params, &handle), what));
  void* key = nullptr;
  std::size_t key_bytes = 0;
  const ucs_status_t packed = ucp_rkey_pack(context_, handle, &key, &key_bytes);
  if (packed != UCS_OK) {
    ucp_mem_unmap(context_, handle);
    return to_status(packed, what);
  }
  std::string copy(static_cast<const char*>(key), key_bytes);
  ucp_rkey_buffer_release(key);
  return std::make_unique<UcxMemory>(context_, memory, handle, std::move(copy), std::move(pages));
}

Result<ucp_ep_h> UcxWorker::connect(const std::vector<std::byte>& address,
                                    std::function<void(ucs_status_t)>* on_error) {
  // UCX reads an address without knowing its length: what a lying peer cut off reads as zeros.
  std::vector<std::byte> padded(address);
  padded.resize(address.size() + 4096);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(padded.data());
  // Only so may an endpoint to a dead peer be closed without waiting for it.
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = [](void* callback, ucp_ep_h, ucs_status_t status) {
    (*static_cast<std::function<void(ucs_status_t)>*>(callback))(status);
  };
  params.err_handler.arg = on_error;
  ucp_ep_h endpoint = nullptr;
  PRECIS_TRY(to_status(ucp_ep_create(worker_, &params, &endpoint), "reach the peer over UCX"));
  return endpoint;
}

void UcxWorker::close(ucp_ep_h endpoint) {
  ++closing_;
  auto* operation = new UcxOperation{[this](ucs_status_t) { --closing_; }, {}, {}};
  ucp_request_param_t param = callback_param(operation);
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  submit(ucp_ep_close_nbx(endpoint, &param), operation);
}

std::string UcxWorker::describe(ucp_ep_h endpoint) {
  return printed([&](FILE* to) { ucp_ep_print_info(endpoint, to); });
}

ucs_status_t UcxWorker::on_active_message(void* self, const void* header, std::size_t header_bytes,
                                          void* data, std::size_t size,
                                          const ucp_am_recv_param_t* param) {
  auto* worker = static_cast<UcxWorker*>(self);
  worker->on_message_({.header = {static_cast<const std::byte*>(header), header_bytes},
                       .data = data,
                       .size_bytes = size,
                       .rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0});
  return UCS_OK;
}

void UcxWorker::send(ucp_ep_h endpoint, const AmHeader& header, const std::vector<Bytes>& data,
                     UcxDone done) {
  auto* operation = new UcxOperation{std::move(done), encode_am_header(header), {}};
  for (const Bytes range : data) {
    operation->ranges.push_back({const_cast<std::byte*>(range.data()), range.size()});
  }
  ucp_request_param_t param = callback_param(operation);
  const void* buffer = data.empty() ? nullptr : data.front().data();
  std::size_t count = data.empty() ? 0 : data.front().size();
  if (data.size() > 1) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = UCP_DATATYPE_IOV;
    buffer = operation->ranges.data();
    count = operation->ranges.size();
  }
  submit(ucp_am_send_nbx(endpoint, kActiveMessageId, operation->header.data(),
                         operation->header.size(), buffer, count, &param),
         operation);
}

void UcxWorker::receive(const UcxInbound& inbound, void* into, UcxDone done) {
  if (!inbound.rendezvous) {
    if (inbound.size_bytes > 0) std::memcpy(into, inbound.data, inbound.size_bytes);
    return done(UCS_OK);
  }
  auto* operation = new UcxOperation{std::move(done), {}, {}};
  ucp_request_param_t param = callback_param(operation);
  param.cb.recv_am = &UcxOperation::on_received;
  submit(ucp_am_recv_data_nbx(worker_, inbound.data, into, inbound.size_bytes, &param), operation);
}

void UcxWorker::flush(ucp_ep_h endpoint, UcxDone done) {
  auto* operation = new UcxOperation{std::move(done), {}, {}};
  ucp_request_param_t param = callback_param(operation);
  submit(ucp_ep_flush_nbx(endpoint, &param), operation);
}

Result<ucp_rkey_h> UcxWorker::unpack_key(ucp_ep_h endpoint, const std::string& key) {
  std::string padded = key;  // as for addresses
  padded.resize(key.size() + 4096);
  ucp_rkey_h unpacked = nullptr;
  PRECIS_TRY(to_status(ucp_ep_rkey_unpack(endpoint, padded.data(), &unpacked),
                       "read the key of a region"));
  return unpacked;
}

void UcxWorker::get(ucp_ep_h endpoint, MutableBytes into, ucp_mem_h local, std::uint64_t remote,
                    ucp_rkey_h key, UcxDone done) {
  auto* operation = new UcxOperation{std::move(done), {}, {}};
  ucp_request_param_t param = callback_param(operation);
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  param.memh = local;
  submit(ucp_get_nbx(endpoint, into.data(), into.size(), remote, key, &param), operation);
}

void UcxWorker::put(ucp_ep_h endpoint, Bytes from, ucp_mem_h local, std::uint64_t remote,
                    ucp_rkey_h key, UcxDone done) {
  // The put itself ends when `from` may be reused; the flush after it, when the bytes are there.
  auto then_flush = [endpoint, done = std::move(done)](ucs_status_t status) {
    if (status != UCS_OK) return done(status);
    flush(endpoint, done);
  };
  auto* operation = new UcxOperation{std::move(then_flush), {}, {}};
  ucp_request_param_t param = callback_param(operation);
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  param.memh = local;
  submit(ucp_put_nbx(endpoint, from.data(), from.size(), remote, key, &param), operation);
}

}  // namespace precis
