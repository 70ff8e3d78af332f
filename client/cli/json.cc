#include "client/cli/json.h"

namespace precis::cli {

Json to_json(const ModelBudgets& of_model) {
  Json json = {{"model", of_model.model.fingerprint.hex()}, {"name", of_model.model.model.name}};
  json.update(to_json(of_model.budgets));
  return json;
}

}  // namespace precis::cli
