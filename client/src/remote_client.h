// The Client that sends its calls to a service, or to the nodes of a cluster, each as one request.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/src/page_movers.h"
#include "client/src/remote_operator.h"
#include "client/src/staging_pool.h"
#include "precis/client.h"

namespace precis {

class RemoteClient final : public RemoteOperator {
 public:
  RemoteClient(std::shared_ptr<Nodes> nodes, std::shared_ptr<HostMemory> memory,
               std::shared_ptr<StagingPool> staging, std::shared_ptr<PageMovers> movers,
               const CallOptions& options)
      : RemoteOperator(std::move(nodes), options),
        memory_(std::move(memory)),
        staging_(std::move(staging)),
        movers_(std::move(movers)) {}

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

 private:
  Result<msg::SessionRow> call_session(const std::string& name, msg::RequestBody body);
  Result<Model> register_at(const Target& node, Retry& retry, const ModelSpec& spec,
                            std::span<const HeadsView> o_proj);
  Status push_projection(const Target& node, Retry& retry, const Model& model, std::uint32_t layer,
                         const HeadsView& weights);

  const std::shared_ptr<HostMemory> memory_;    // shared with the channels
  const std::shared_ptr<StagingPool> staging_;  // shared with the puts
  const std::shared_ptr<PageMovers> movers_;    // shared with the puts and prefixes
};

}  // namespace precis
