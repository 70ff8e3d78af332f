// The contract of SharedTier (cachesvc/shared/shared_tier.h), for each storage that implements it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cachesvc/shared/shared_tier.h"

namespace precis::testing {

struct ContractCase {
  const char* name;
  void (*run)(SharedTier& tier);  // the tier is empty; uses the assertions of Catch2
};
const std::vector<ContractCase>& shared_tier_contract();

// Objects longer than this have several pieces, if a tier divides objects.
inline constexpr std::size_t kContractPieceBytes = 100'000;

std::vector<std::byte> bytes_of(const std::string& text);
using RowsFound = std::map<std::pair<std::uint32_t, std::string>, std::vector<std::byte>>;
// All rows of these shards. A failure, or a row that comes twice, fails the test.
RowsFound rows_of(SharedTier& tier, const std::vector<std::uint32_t>& shards);
std::map<std::string, std::vector<std::byte>> common_rows_of(SharedTier& tier);

}  // namespace precis::testing
