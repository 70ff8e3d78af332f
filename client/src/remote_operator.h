// The calls of a remote client that operators and their tools use. Each is one request to any node,
// except that calls about stored segments ask every node of a cluster: segments are named without
// their shard. So do calls about applications of budgets, whose sums they return.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/src/node_applications.h"
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

  Retry begin(const msg::RequestBody& body) const { return begin(kind_of(body).call); }
  Retry begin(std::string_view what) const { return {options_, std::string(what)}; }

  // Fetches all pages of a node's list, as a part of a call.
  template <typename Page, typename Request>
  auto all_rows(Retry& retry, const Target& node, Request request) -> Result<decltype(Page::rows)> {
    decltype(Page::rows) rows;
    for (;;) {
      retry.went_well();
      PRECIS_ASSIGN(Page page, nodes_->call<Page>(retry, node, request));
      std::ranges::move(page.rows, std::back_inserter(rows));
      if (page.next.empty()) return rows;
      request.after = std::move(page.next);
    }
  }
  template <typename Page, typename Request>
  auto all_rows(const Request& request) -> Result<decltype(Page::rows)> {
    Retry retry = begin(request);
    return all_rows<Page>(retry, AnyNode{}, request);
  }

  template <typename T>
  Result<T> call(msg::RequestBody body, Patience patience = Patience::kOneTimeout,
                 const Target& target = AnyNode{}, Nodes::Repeat repeat = Nodes::Repeat::kSafe) {
    Retry retry = begin(body);
    return nodes_->call<T>(retry, target, std::move(body), patience, repeat);
  }
  // For a request that must not be repeated when its connection is lost.
  template <typename T>
  Result<T> call_once(msg::RequestBody body, const Target& target = AnyNode{},
                      Patience patience = Patience::kOneTimeout) {
    return call<T>(std::move(body), patience, target, Nodes::Repeat::kUnsafe);
  }
  // Asks every node, and returns the answers of those that have the object: at least one, otherwise
  // kNotFound. In a cluster, nodes that have owned its shard may have it too. If a node does not
  // answer, the others are asked all the same, and then its error is returned.
  template <typename T>
  Result<std::vector<T>> call_holders(const msg::RequestBody& body,
                                      Patience patience = Patience::kOneTimeout,
                                      Nodes::Repeat repeat = Nodes::Repeat::kSafe) {
    Retry retry = begin(body);
    PRECIS_ASSIGN(const auto targets, nodes_->all(retry));
    std::vector<T> answers;
    Status not_found, failed;
    for (const Target& node : targets) {
      retry.went_well();
      auto answer = nodes_->call<T>(retry, node, body, patience, repeat);
      if (answer.ok()) {
        answers.push_back(std::move(*answer));
      } else if (answer.status().code() == StatusCode::kNotFound) {
        not_found = answer.status();
      } else if (failed.ok()) {
        failed = answer.status();
      }
    }
    PRECIS_TRY(failed);
    if (answers.empty()) return not_found;
    return answers;
  }
  // The first of these answers.
  template <typename T>
  Result<T> call_holder(const msg::RequestBody& body, Patience patience = Patience::kOneTimeout) {
    PRECIS_ASSIGN(auto answers, call_holders<T>(body, patience));
    return std::move(answers.front());
  }

  // In a cluster: asks every node before one of them makes a change for all. Returns the first
  // error of a node that knows what is asked about.
  Status ask_all_first(Retry& retry, const std::function<Status(const Target&)>& ask);

  const std::shared_ptr<Nodes> nodes_;  // shared with the puts and prefixes begun on them
  const CallOptions options_;

 private:
  // The applications of all nodes.
  Result<std::vector<NodeApplication>> all_applications(Retry& retry);
  // In a cluster: kConflict while a node trims what it stores to an earlier change of budgets.
  Status check_none_trims();
  // The newest of a node.
  Result<std::vector<msg::SegmentInfo>> segments_of(Retry& retry, const Target& node,
                                                    std::optional<Digest> model,
                                                    std::uint32_t limit);
};

}  // namespace precis
