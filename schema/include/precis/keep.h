// Parses the amount to keep as users write it.
#pragma once

#include <string>

#include "precis/types.h"

namespace precis {

// Accepts "0.3", "30%", "128 entries" (per head), "64 MiB" (of a segment; also B, KiB, GiB, KB, MB,
// GB), "10% bytes" (of the full K and V) and "loss 0.05": every form of Budget::to_string() except
// "all". kInvalidArgument names `field` and shows these forms.
Result<Budget> parse_keep(const std::string& text, const std::string& field = "keep");

// kInvalidArgument, naming `field`, for shares outside (0, 1], and for no entries or bytes.
Status check_keep(const Budget& keep, const std::string& field = "keep");
// As check_keep(), for what is stored and for limits: kInvalidArgument for a loss, too.
Status check_reader_keep(const Budget& keep, const std::string& field = "keep");

}  // namespace precis
