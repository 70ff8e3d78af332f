// Requests about backups. Only admins may send them, because a backup has the rows of all tenants.
#pragma once

#include "cachesvc/backup/backups.h"
#include "cachesvc/server/caller.h"

namespace precis {

class BackupRequests {
 public:
  explicit BackupRequests(const Caller& caller) : caller_(caller), backups_(caller.parts.backups) {}

  Task<Answer> on(msg::StartBackup request);
  Task<Answer> on(msg::ListBackups request);
  Task<Answer> on(msg::ShowBackup request);
  Task<Answer> on(msg::CancelBackup request);

 private:
  const Caller& caller_;
  Backups& backups_;
};

}  // namespace precis
