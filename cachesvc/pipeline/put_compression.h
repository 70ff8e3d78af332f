// Takes a layer of a put from its rows to its records: check, score, order, join, encode, and for
// records that no other layer changes, the write to the store. Loop thread only, except the stages
// themselves, which run on compute threads.
#pragma once

#include <cstdint>
#include <memory>

#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/compressor_pool.h"
#include "cachesvc/pipeline/gate.h"
#include "cachesvc/pipeline/put_memory.h"
#include "precis/stages.h"

namespace precis {

class PutCompression {
 public:
  // Both outlive it.
  PutCompression(const PutParts& parts, PutMemory& memory);

  // Compresses a layer whose rows are staged. A failure is the put's.
  Task<void> run(std::shared_ptr<OpenPut> put, std::uint32_t layer);
  // Compresses a claimed layer in the client's memory, if it is whole and readable there. Returns
  // whether it did.
  Task<bool> run_in_place(std::shared_ptr<OpenPut> put, const msg::PushLayer& piece,
                          Connection& from);
  // Hands a layer's final records to the store, which shares them: they stay where they are until
  // they are written, even if the put has ended.
  void write(OpenPut& put, PutLayer& layer);

 private:
  bool read_in_place(OpenPut& put, const msg::PushLayer& piece, Connection& from);
  Task<void> compress(std::shared_ptr<OpenPut> put, std::uint32_t layer);
  // On compute threads. The layers of a put share what join() locks.
  Status stages(OpenPut& put, std::uint32_t layer);
  Status join(OpenPut& put, std::uint32_t layer, kernels::OrderedLayer ordered);

  const PutParts& parts_;
  PutMemory& memory_;
  CompressorPool compressors_;
  Gate in_place_;
  std::size_t staged_ = 0;  // staged layers being compressed
};

}  // namespace precis
