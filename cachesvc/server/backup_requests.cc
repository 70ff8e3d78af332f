#include "cachesvc/server/backup_requests.h"

#include <utility>

namespace precis {

Task<Answer> BackupRequests::on(msg::StartBackup request) {
  if (caller_.parts.uploads != nullptr) {
    co_return Status::unsupported(
        "a node's disk does not have all that is stored if the nodes share a storage: back up that "
        "storage and etcd instead (docs/guides/cluster.md, Backups)");
  }
  const auto start = [&] { return backups_.start(request.name, request.keep); };
  PRECIS_CO_ASSIGN(auto state, co_await caller_.stored(start));
  const std::string text =
      request.keep == 0 ? "all are kept" : "keeps " + std::to_string(request.keep);
  caller_.note({"StartBackup", "backup asked for", state.name, text, "", text});
  co_return msg::ReplyBody(std::move(state));
}

Task<Answer> BackupRequests::on(msg::ListBackups) {
  co_return answer(co_await caller_.stored([this] { return backups_.list(); }));
}

Task<Answer> BackupRequests::on(msg::ShowBackup) { co_return msg::ReplyBody(backups_.state()); }

Task<Answer> BackupRequests::on(msg::CancelBackup) {
  auto state = backups_.cancel();
  caller_.note({.request = "CancelBackup", .of = state.name});
  co_return msg::ReplyBody(std::move(state));
}

}  // namespace precis
