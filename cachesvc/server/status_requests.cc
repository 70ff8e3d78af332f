#include "cachesvc/server/status_requests.h"

namespace precis {

Task<Answer> StatusRequests::on(msg::GetStats) {
  co_return msg::ReplyBody(caller_.parts.server_stats(caller_.tenant.name));
}

Task<Answer> StatusRequests::on(msg::Ping) { co_return answer(Status()); }

Task<Answer> StatusRequests::on(msg::GetStatus) {
  msg::ServerStatus status = caller_.parts.server_status(caller_.tenant.name);
  status.tenant = caller_.tenant.name;
  status.transport = caller_.connection.description();
  co_return msg::ReplyBody(std::move(status));
}

}  // namespace precis
