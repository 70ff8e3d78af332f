// The Client that sends its calls over a channel, each as one request.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/src/page_movers.h"
#include "client/src/reconnecting_channel.h"
#include "client/src/staging_pool.h"
#include "precis/client.h"

namespace precis {

class RemoteClient final : public Client {
 public:
  RemoteClient(std::shared_ptr<ReconnectingChannel> link, std::shared_ptr<HostMemory> memory,
               std::shared_ptr<StagingPool> staging, std::shared_ptr<PageMovers> movers,
               const CallOptions& options)
      : link_(std::move(link)),
        memory_(std::move(memory)),
        staging_(std::move(staging)),
        movers_(std::move(movers)),
        options_(options) {}

  std::shared_ptr<Client> with_deadline(std::uint32_t deadline_ms) override;

  Result<std::shared_ptr<HostBuffer>> allocate(std::size_t size_bytes) override {
    return memory_->allocate(size_bytes);
  }

  Result<Model> register_model(const ModelSpec& spec, std::span<const HeadsView> o_proj) override;
  Result<std::vector<msg::ModelRow>> models() override;
  Status remove_model(const Digest& fingerprint) override;
  Result<msg::ProfileRow> add_profile(const std::string& json) override;
  Result<std::vector<msg::ProfileRow>> profiles(std::optional<Digest> model) override;
  Result<msg::ProfileRow> profile(const Digest& model, const std::string& name) override;
  Status remove_profile(const Digest& model, const std::string& name) override;

  Result<Put> begin_put(const Model& model, std::span<const TokenId> tokens,
                        const PutOptions& options) override;
  Result<LookupMatch> lookup(const Model& model, std::span<const TokenId> tokens,
                             const LookupOptions& options) override;
  Result<Prefix> get(const LookupMatch& match, const Budget& keep,
                     const GetOptions& options) override;

  Result<msg::SessionRow> open_session(const std::string& name,
                                       std::optional<std::uint64_t> ttl_seconds,
                                       std::optional<Budget> total) override;
  Result<msg::SessionRow> advance_session(const std::string& name, const SegmentId& tip) override;
  Result<msg::SessionRow> pin_session(const std::string& name, bool pinned) override;
  Result<msg::SessionRow> fork_session(const std::string& name,
                                       const std::string& new_name) override;
  Result<msg::SessionRow> session(const std::string& name) override;
  Result<std::vector<msg::SessionRow>> sessions() override;
  Status remove_session(const std::string& name) override;

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

 private:
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
  Status push_projection(Retry& retry, const Model& model, std::uint32_t layer,
                         const HeadsView& weights);

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
      link_;                                    // shared with the puts and prefixes begun on it
  const std::shared_ptr<HostMemory> memory_;    // shared with the channels
  const std::shared_ptr<StagingPool> staging_;  // shared with the puts
  const std::shared_ptr<PageMovers> movers_;    // shared with the puts and prefixes
  const CallOptions options_;
};

}  // namespace precis
