// The work of the service that no request waits for.
#pragma once

#include <memory>

#include "cachesvc/backup/backups.h"
#include "cachesvc/capacity/capacity_manager.h"
#include "cachesvc/pipeline/budget_applications.h"
#include "cachesvc/pipeline/consolidator.h"
#include "cachesvc/pipeline/session_totals.h"

namespace precis {

struct Background {
  std::unique_ptr<CapacityManager> capacity;
  std::unique_ptr<Backups> backups;
  std::unique_ptr<Consolidator> consolidator;
  std::unique_ptr<SessionTotals> totals;
  std::unique_ptr<BudgetApplications> applications;

  // Makes all running work end soon.
  void stop() {
    capacity->stop();
    backups->stop();
    consolidator->stop();
    totals->stop();
    applications->stop();
  }
  bool busy() const {
    return capacity->busy() || backups->busy() || consolidator->busy() || totals->busy() ||
           applications->busy();
  }
};

}  // namespace precis
