#include "tests/hostile/mutated.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/hostile/session.h"

namespace precis::hostile {
namespace {

constexpr std::uint64_t kBatch = 5000;    // sessions between two checks of the service
constexpr std::uint32_t kFramesMax = 12;  // most sessions have no more
constexpr std::uint8_t kHosts = 200;
constexpr std::uint64_t kAdmittedShare = 4;  // at least one session in so many must be admitted

// Records one whole session for every kind of bulk transfer over both kinds of control socket.
Recording record(Victim& victim, Finding& finding) {
  Recording recording;
  for (const bool over_unix : {false, true}) {
    for (const auto bulk : {Plan::Bulk::kTcp, Plan::Bulk::kUnix, Plan::Bulk::kShared}) {
      Talk talk(victim.target(), {.over_unix = over_unix, .recording = &recording});
      const Plan plan{over_unix, bulk, (1u << kParts) - 1,
                      static_cast<std::uint32_t>(bulk) + (over_unix ? 10 : 0)};
      finding.expect(run_session(talk, Victim::login(over_unix ? "bob" : "open"), plan),
                     "a session without a change was not answered with success");
    }
  }
  finding.count("frames_recorded", static_cast<double>(recording.size()));
  return recording;
}

struct Counts {
  std::atomic<std::uint64_t> next{0}, admitted{0}, whole{0};
};

void run_some(Victim& victim, const Recording& recording, std::uint64_t end, std::uint32_t seed,
              Counts& counts) {
  for (std::uint64_t i = counts.next++; i < end; i = counts.next++) {
    std::mt19937 random(static_cast<std::uint32_t>(seed + i));
    const Plan plan = random_plan(random);
    Twister twister(static_cast<std::uint32_t>(random()), recording,
                    static_cast<std::uint32_t>(random() % kFramesMax));
    Talk talk(victim.target(), {.over_unix = plan.control_over_unix,
                                .host = static_cast<std::uint8_t>(2 + random() % kHosts),
                                .twister = &twister,
                                .patience = milliseconds(1000)});
    // A changed Hello is admitted more often for a tenant that needs no proof.
    const bool ok = run_session(talk, Victim::login(random() % 3 == 0 ? "bob" : "open"), plan);
    counts.admitted += talk.connection() != 0 ? 1 : 0;
    counts.whole += ok ? 1 : 0;
  }
}

}  // namespace

Finding attack_by_mutation(Victim& victim, const MutatedOptions& options) {
  Finding finding{0, "mutated sessions", {}, {}};
  const Recording recording = record(victim, finding);
  Counts counts;
  std::uint64_t done = 0;
  while (done < options.sessions && finding.wrong.empty()) {
    const std::uint64_t end = std::min(done + kBatch, options.sessions);
    counts.next = done;
    {
      std::vector<std::jthread> threads;
      for (unsigned t = 0; t < options.threads; ++t) {
        threads.emplace_back([&] { run_some(victim, recording, end, options.seed, counts); });
      }
    }
    done = end;
    finding.numbers.resize(1);
    victim.check(finding);
    if (options.progress) options.progress(done);
  }
  finding.count("sessions", static_cast<double>(done));
  finding.count("sessions_admitted", static_cast<double>(counts.admitted.load()));
  // Otherwise the changes end at the greeting, and the code after it is not attacked.
  finding.expect(counts.admitted * kAdmittedShare >= done,
                 "of " + std::to_string(done) + " changed sessions only " +
                     std::to_string(counts.admitted.load()) + " were admitted");
  finding.count("sessions_answered_all_the_same", static_cast<double>(counts.whole.load()));
  return finding;
}

}  // namespace precis::hostile
