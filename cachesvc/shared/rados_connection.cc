#include "cachesvc/shared/rados_connection.h"

#include <array>
#include <cerrno>
#include <system_error>

#include "cachesvc/shared/rados_keys.h"
#include "cachesvc/shared/rados_ops.h"

namespace precis::rados {
namespace {

constexpr std::size_t kSettingBytesMax = 4096;

std::string text_of(int error) { return std::generic_category().message(-error); }

StatusCode code_of(int error) {
  switch (-error) {
    case EPERM:
    case EACCES: return StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT: return StatusCode::kOutOfSpace;
    case EOPNOTSUPP: return StatusCode::kUnsupported;
    // The same call would fail again.
    case E2BIG:
    case EFBIG:
    case EMSGSIZE:
    case ENAMETOOLONG: return StatusCode::kInvalidArgument;
    default: return StatusCode::kUnavailable;
  }
}

}  // namespace

Status failure(int error, const std::string& operation, const std::string& object) {
  std::string message = "Ceph: " + operation + " " + object + ": " + text_of(error);
  if (error == -ESHUTDOWN) message += "; this client is on Ceph's blocklist: connect again";
  if (error == -ENOENT) message += "; has the pool been removed?";
  return {code_of(error), std::move(message)};
}

Result<std::unique_ptr<RadosConnection>> RadosConnection::open(const RadosSettings& settings) {
  PRECIS_ASSIGN(const RadosLibrary library, load_rados());
  std::unique_ptr<RadosConnection> connection(new RadosConnection(library));
  PRECIS_TRY(connection->connect(settings));
  PRECIS_TRY(connection->open_pool(settings));
  PRECIS_TRY(connection->try_write(settings));
  return connection;
}

RadosConnection::~RadosConnection() {
  if (io_ != nullptr) library_.ioctx_destroy(io_);
  if (cluster_ != nullptr) library_.shutdown(cluster_);
}

std::string RadosConnection::setting(const char* name) const {
  std::array<char, kSettingBytesMax> value{};
  return library_.conf_get(cluster_, name, value.data(), value.size()) < 0 ? "" : value.data();
}

Status RadosConnection::configure(const RadosSettings& settings) {
  const int created = library_.create2(&cluster_, "ceph", settings.user.c_str(), 0);
  if (created < 0) {
    cluster_ = nullptr;
    return Status::invalid("Ceph: the user '" + settings.user +
                           "' must be a name such as client.precis (" + text_of(created) + ")");
  }
  const int read = library_.conf_read_file(cluster_, settings.ceph_conf.c_str());
  if (read < 0) {
    return Status::invalid("Ceph: read " + settings.ceph_conf + ": " + text_of(read) +
                           "; name the configuration file of the Ceph cluster, which this process "
                           "must be able to read");
  }
  // librados would ask DNS, which the timeout does not bound.
  if (setting("mon_host").empty()) {
    return Status::invalid("Ceph: " + settings.ceph_conf +
                           " names no monitors; give it mon_host, with their addresses");
  }
  const std::string seconds = std::to_string(settings.timeout.count());
  for (const char* name :
       {"client_mount_timeout", "rados_mon_op_timeout", "rados_osd_op_timeout"}) {
    const int set = library_.conf_set(cluster_, name, seconds.c_str());
    if (set < 0) {
      return Status::invalid("Ceph: set " + std::string(name) + " to " + seconds +
                             " s: " + text_of(set));
    }
  }
  return {};
}

Status RadosConnection::connect(const RadosSettings& settings) {
  PRECIS_TRY(configure(settings));
  const int connected = library_.connect(cluster_);
  return connected < 0 ? refused(connected, settings) : Status();
}

// connect() has failed with this error.
Status RadosConnection::refused(int error, const RadosSettings& settings) const {
  const std::string monitors = setting("mon_host");
  const std::string keyring = setting("keyring");
  const std::string& conf = settings.ceph_conf;
  const std::string& user = settings.user;
  const std::string intro = "Ceph: connect as " + user + " (" + text_of(error) + "): ";
  switch (-error) {
    case ENOENT:
      return Status::denied(intro + "there is no key of " + user + " in " + keyring +
                            "; write the output of `ceph auth get " + user +
                            "` into a file, and name it as keyring in the section [" + user +
                            "] of " + conf);
    case EPERM:
    case EACCES:
      return Status::denied(intro +
                            "the monitors do not accept the key, or it cannot be read; compare " +
                            keyring + " with the output of `ceph auth get " + user + "`");
    case EINVAL:
      return Status::invalid(intro + "the key cannot be read; compare " + keyring +
                             " with the output of `ceph auth get " + user + "`");
    default:
      return Status::unavailable(intro + "no monitor answers within " +
                                 std::to_string(settings.timeout.count()) +
                                 " s, of mon_host = " + monitors + " in " + conf);
  }
}

Status RadosConnection::open_pool(const RadosSettings& settings) {
  const int created = library_.ioctx_create(cluster_, settings.pool.c_str(), &io_);
  if (created == -ENOENT) {
    return Status::not_found("Ceph: there is no pool '" + settings.pool + "' in the cluster of " +
                             settings.ceph_conf + "; create it with `ceph osd pool create " +
                             settings.pool + "`");
  }
  if (created < 0) return failure(created, "open the pool", settings.pool);
  library_.ioctx_set_namespace(io_, settings.space.c_str());
  // Without it, writes to a full pool would wait until they time out.
  library_.set_pool_full_try(io_);
  return {};
}

// Learns whether the user may write to the pool, and whether the pool can hold rows.
Status RadosConnection::try_write(const RadosSettings& settings) {
  WriteOp op(*this);
  op.create();
  op.remove({mark_key(0)});  // the common rows have no such key
  const int error = op.operate(kCommonObject);
  const Status tried = error < 0 ? failure(error, "write to the pool", settings.pool) : Status();
  switch (tried.code()) {
    case StatusCode::kPermissionDenied:
      return Status::denied(tried.message() + "; permit it with `ceph auth caps " + settings.user +
                            " mon 'allow r' osd 'allow rw pool=" + settings.pool + "'`");
    case StatusCode::kUnsupported:
      return Status::unsupported(tried.message() +
                                 "; choose a replicated pool, because "
                                 "erasure-coded ones have no omap");
    case StatusCode::kOutOfSpace: return {};  // what is stored can be read and removed
    default: return tried;
  }
}

}  // namespace precis::rados
