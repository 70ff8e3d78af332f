// Hashes token paths without blocking the loop: short or cached paths on the loop, the others on a
// separate thread, in pieces that are fair between tenants.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/digest_room.h"
#include "cachesvc/pipeline/fair_executor.h"
#include "cachesvc/pipeline/path_digests.h"
#include "precis/status.h"

namespace precis {

class PathHasher {
 public:
  // Tokens per piece: about a millisecond of work.
  static constexpr std::size_t kPieceTokens = 64u << 10;
  // Half a millisecond of work: while transfers run, waking a thread takes longer.
  static constexpr std::size_t kHereTokensMax = 64u << 10;
  static constexpr std::size_t kHereHashedMax = 32u << 10;  // tokens that were not cached

  // `thread`: of one thread. `seed`: of the digests' cache.
  PathHasher(EventLoop& loop, std::unique_ptr<Executor> thread, std::uint64_t seed)
      : loop_(loop), room_(loop), here_(seed), there_(seed), turns_(std::move(thread)) {}

  // Refuses a path of too many blocks. Call it before with(), which allocates memory for all
  // digests.
  static Status check(std::size_t num_tokens, std::uint32_t block_tokens);

  // Loop thread. Hashes the path and calls `use` with it, on the loop or on the separate thread:
  // `use` may touch only thread-safe objects or the caller's own. The thread that calls `use` also
  // frees the tokens, because freeing many tokens takes long. Returns the result of `use`.
  template <typename Use>
  Task<std::invoke_result_t<Use&, const TokenPath&>> with(Owner owner, Digest root,
                                                          std::vector<TokenId> tokens,
                                                          std::uint32_t block_tokens, Use use) {
    const auto place = co_await room_.enter(tokens.size(), block_tokens, owner);
    TokenPath path{root, tokens, block_tokens, {}};
    const bool is_short = tokens.size() <= kHereTokensMax;
    if (is_short && here_.extend(path, kHereTokensMax, kHereHashedMax)) co_return use(path);
    std::optional<std::invoke_result_t<Use&, const TokenPath&>> result;
    co_await in_turns(turns_, loop_, std::move(owner), [&] {
      if (!there_.extend(path, kPieceTokens, kPieceTokens)) return true;
      result.emplace(use(path));
      path = {};
      std::vector<TokenId>().swap(tokens);
      return false;
    });
    co_return std::move(*result);
  }

  const DigestRoom& room() const { return room_; }
  // For other work that is too long for the loop. Any thread.
  FairExecutor& turns() { return turns_; }

 private:
  EventLoop& loop_;
  DigestRoom room_;
  PathDigests here_;   // for the loop
  PathDigests there_;  // for the one thread of turns_
  FairExecutor turns_;
};

}  // namespace precis
