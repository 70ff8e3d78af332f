// Compresses a layer of a put: check, score, order, join, encode. Then gives the records to the
// store to write, if no other layer changes them. Loop thread only, except the stages themselves,
// which run on compute threads.
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
  // Both must outlive this object.
  PutCompression(const PutParts& parts, PutMemory& memory);

  // Compresses a layer whose rows are staged. An error fails the put.
  Task<void> run(std::shared_ptr<OpenPut> put, std::uint32_t layer);
  // Compresses a claimed layer in the client's memory, if `piece` is the whole layer and the
  // service can read that memory. Returns whether it did.
  Task<bool> run_in_place(std::shared_ptr<OpenPut> put, const msg::PushLayer& piece,
                          Connection& from);
  // Lets the store write a layer's final records. The store shares them until they are written,
  // even if the put ends before. Also called with the put's lock held, on compute threads.
  void write(const OpenPut& put, PutLayer& layer);

 private:
  bool read_in_place(OpenPut& put, const msg::PushLayer& piece, Connection& from);
  Task<void> compress(std::shared_ptr<OpenPut> put, std::uint32_t layer);
  // On compute threads. Layers of one put join one at a time, under the put's lock.
  Status stages(OpenPut& put, std::uint32_t layer);
  Status join(OpenPut& put, std::uint32_t layer, kernels::OrderedLayer ordered);

  const PutParts& parts_;
  PutMemory& memory_;
  CompressorPool compressors_;
  Gate in_place_;
  std::size_t staged_ = 0;  // staged layers being compressed
};

}  // namespace precis
