// Output projections of models. Private to this folder.
//
// Their bytes are payload of the local store. If nodes share a storage, their rows are settings,
// which all nodes have, and their bytes are objects of that storage, which a node keeps a copy of
// once it has read them.
#pragma once

#include <vector>

#include "cachesvc/catalog/catalog_state.h"

namespace precis {

class CatalogProjections : public virtual CatalogState {
 public:
  Status share_projection(const StoredProjection& row, Bytes weights, Bytes grams) override;
  Status add_projection(const StoredProjection& row, Bytes weights, Bytes grams) override;
  Result<Projection> projection(std::string_view tenant, const Digest& model,
                                std::uint32_t layer) const override;
  Status read_projection(const StoredProjection& row, ProjectionPart part,
                         MutableBytes into) override;
  // Removes the shared objects of rows that are gone. If that fails, they take space, and no row
  // names them.
  static void remove_shared_bytes(Store& store, const std::vector<Projection>& rows);

 private:
  Status check_projection(const StoredProjection& row) const;
  Status check_projection_room(const StoredProjection& row) const;
  Status name_projection(const StoredProjection& row);
  std::uint64_t kept_projection_bytes() const;
  void keep_projection(const StoredProjection& row, bool is_gram, Bytes bytes);
};

}  // namespace precis
