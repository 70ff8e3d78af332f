// The calls of a remote client that operators and their tools use. Each is one request to any node,
// except that calls about stored segments ask every node of a cluster: segments are named without
// their shard.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/src/nodes.h"
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
  RemoteOperator(std::shared_ptr<Nodes> nodes, const CallOptions& options)
      : nodes_(std::move(nodes)), options_(options) {}

  // Fetches all pages of a list.
  template <typename Page, typename Request>
  auto all_rows(Request request, const Target& target = AnyNode{}) -> Result<decltype(Page::rows)> {
    decltype(Page::rows) rows;
    for (;;) {
      PRECIS_ASSIGN(Page page, call<Page>(request, Patience::kOneTimeout, target));
      std::ranges::move(page.rows, std::back_inserter(rows));
      if (page.next.empty()) return rows;
      request.after = std::move(page.next);
    }
  }

  template <typename T>
  Result<T> call(msg::RequestBody body, Patience patience = Patience::kOneTimeout,
                 const Target& target = AnyNode{}, Nodes::Repeat repeat = Nodes::Repeat::kSafe) {
    Retry retry(options_, std::string(kind_of(body).call));
    return nodes_->call<T>(retry, target, std::move(body), patience, repeat);
  }
  // For a request that must not be repeated when its connection is lost.
  template <typename T>
  Result<T> call_once(msg::RequestBody body, const Target& target = AnyNode{},
                      Patience patience = Patience::kOneTimeout) {
    return call<T>(std::move(body), patience, target, Nodes::Repeat::kUnsafe);
  }
  // All live nodes.
  Result<std::vector<Target>> every_node(std::string_view what) {
    return nodes_->all(Retry(options_, std::string(what)));
  }
  // Asks one node after the other until one does not answer kNotFound.
  template <typename T>
  Result<T> call_holder(const msg::RequestBody& body, Patience patience = Patience::kOneTimeout) {
    PRECIS_ASSIGN(const auto targets, every_node(kind_of(body).call));
    Result<T> answer = Status::unavailable("the cluster has no node");
    for (const Target& target : targets) {
      answer = call<T>(body, patience, target);
      if (answer.status().code() != StatusCode::kNotFound) break;
    }
    return answer;
  }

  const std::shared_ptr<Nodes> nodes_;  // shared with the puts and prefixes begun on them
  const CallOptions options_;

 private:
  // The newest of a node.
  Result<std::vector<msg::SegmentInfo>> segments_of(const Target& node, std::optional<Digest> model,
                                                    std::uint32_t limit);
};

}  // namespace precis
