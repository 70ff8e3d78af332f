// The calls of a remote client that operators and their tools use, each as one request.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/src/reconnecting_channel.h"
#include "precis/client.h"

namespace precis {

class RemoteOperator : public Client {
 public:
  Result<std::vector<msg::SegmentInfo>> segments(std::optional<Digest> model,
                                                 std::uint32_t limit) override;
  Result<msg::Segments> segments_page(const msg::ListPrefixes& request) override;
  Result<msg::SegmentInfo> segment(const SegmentId& id) override;
  Result<msg::SegmentInfo> find_segment(const std::string& id_beginning) override;
  Result<msg::Removed> remove_segment(const SegmentId& id, bool recursive) override;
  Result<msg::Checked> check_segment(const SegmentId& id) override;
  Result<msg::Trimmed> trim_segment(const SegmentId& id, const Budget& keep, Durability durability,
                                    bool dry_run) override;
  Result<msg::SegmentInfo> set_retention(const msg::SetRetention& change) override;
  Result<msg::Budgets> budgets(std::optional<Digest> model, const std::string& session) override;
  Result<msg::Budgets> set_budget(const msg::SetBudget& change) override;
  Result<msg::BudgetRevisions> budget_revisions(const msg::ListBudgetRevisions& which) override;
  Result<msg::Events> events(const msg::ListEvents& after) override;
  Result<msg::BudgetChanges> compare_budgets(const msg::CompareBudgets& which) override;
  Result<msg::BudgetRevision> roll_back_budget(const msg::RollBackBudget& change) override;
  Result<msg::IssuedToken> add_tenant(const msg::AddTenant& tenant) override;
  Result<std::vector<msg::TenantRow>> tenants() override;
  Result<msg::TenantRow> tenant(const std::string& name) override;
  Result<msg::TenantRow> change_tenant(const msg::ChangeTenant& change) override;
  Result<msg::IssuedToken> rotate_token(const std::string& name, bool drop_old) override;
  Result<msg::Removed> remove_tenant(const std::string& name, bool purge) override;
  Result<msg::BudgetApplication> application() override;
  Result<msg::BudgetApplication> cancel_application(std::uint64_t number) override;
  Result<msg::BackupState> start_backup(const msg::StartBackup& request) override;
  Result<msg::BackupState> backup() override;
  Result<msg::BackupState> cancel_backup() override;
  Result<msg::Backups> backups() override;
  Result<msg::Stats> stats() override;
  Result<msg::ServerStatus> status() override;
  Result<msg::ClusterState> cluster() override;
  Result<msg::ClusterState> drain_node(const std::string& node, bool on) override;

 protected:
  RemoteOperator(std::shared_ptr<ReconnectingChannel> link, const CallOptions& options)
      : link_(std::move(link)), options_(options) {}

  // Fetches all pages of a list.
  template <typename Page, typename Request>
  auto all_rows(Request request) -> Result<decltype(Page::rows)> {
    decltype(Page::rows) rows;
    for (;;) {
      PRECIS_ASSIGN(Page page, call<Page>(request));
      std::ranges::move(page.rows, std::back_inserter(rows));
      if (page.next.empty()) return rows;
      request.after = std::move(page.next);
    }
  }

  template <typename T>
  Result<T> call(msg::RequestBody body, Patience patience = Patience::kOneTimeout,
                 ReconnectingChannel::Repeat repeat = ReconnectingChannel::Repeat::kSafe) {
    return link_->call<T>(options_, std::move(body), patience, repeat);
  }
  // For a request that must not be repeated when its connection is lost.
  template <typename T>
  Result<T> call_once(msg::RequestBody body) {
    return call<T>(std::move(body), Patience::kOneTimeout, ReconnectingChannel::Repeat::kUnsafe);
  }

  const std::shared_ptr<ReconnectingChannel>
      link_;  // shared with the puts and prefixes begun on it
  const CallOptions options_;
};

}  // namespace precis
