// The parameters of every part of ./dev bench, and the parts. Each part is one file.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "precis/status.h"
#include "tests/bench/row.h"

namespace precis::bench {

struct Plan {
  std::vector<std::size_t> sizes;    // bytes of K and V of a put
  std::vector<std::size_t> clients;  // number of clients that put and get at the same time
  std::size_t rounds = 0;            // counted rounds; the first round is not counted
  std::string dir;                   // our own folder on the measured disk
  std::size_t sustained_bytes = 0;   // written by consecutive puts, to measure the disk's rate
  std::size_t head_records = 0;      // stored in addition to the path that is looked up
  std::size_t samples = 0;           // number of requests whose quantiles are one figure
  std::function<void(const std::string& what)> began;
};

// A unit that succeeds or fails by itself. `owed`: the rows that measure() prints, without rounds,
// so that a figure that could not be measured is reported as well. measure() returns kUnsupported
// if this machine cannot run it.
struct Job {
  std::vector<Row> owed;
  std::function<Status()> measure;
};
using Jobs = std::vector<Job>;

// The parts. transport: "shm" or "tcp". The plan outlives the jobs.

// put, put_ingest (bytes taken in, until the last layer() returned) and get_hot, for every size and
// number of clients; get_by_path (get_hot plus the lookup of the path, because peers find values by
// name) for one client. The recipe keeps everything and scores by position, so that only the data
// plane is measured. put pushes from memory that the client allocated, put_foreign from other
// memory. A get ends when the reader has checked the last layer. For one client, from 64 MiB on,
// also put_bare and get_bare: the work of both on the processor without a service (bare.h).
//
// A put ends with the commit at `memory`: stored as its recipe says and visible to every get, but
// not yet on the disk. One client's puts of a round fit the memory that precisd may hold for
// writing later (a quarter of its memory, which grows with the size of the puts). They reach the
// disk after the clock stops, before their removal returns. The puts of eight clients do not fit
// from 64 MiB on and wait for the disk.
Jobs put_get(const Plan& plan, const std::string& transport);

// put_compressed: a put of 8K tokens with lagkv and keydiff at 20%, from allocated memory,
// committed at `memory`. Its ceiling is the slower of the transport alone and the stages alone.
Jobs put_compressed(const Plan& plan, const std::string& transport);

// lookup_get: a lookup and a get of 64 KiB, one after the other, with precisd and client on one
// core and on two. The ceiling is two raw exchanges of messages of these sizes between processes on
// the same cores.
Jobs ping_pong(const Plan& plan, const std::string& transport);

// first_layer: from get() of a prefix of 32 layers until its first layer is checked. The ceiling is
// one layer's share of the whole get, or of the transport's ceiling if that is faster: a slow get
// does not allow its first layer more time.
Jobs first_layer(const Plan& plan, const std::string& transport);

// server_cpu: processor time of precisd's threads per GB of gets. The ceiling is one thread's
// memcpy.
Jobs server_cpu(const Plan& plan, const std::string& transport);

// get_cold, for every size: gets after a restart, with nothing in the page cache. The ceiling is
// the disk read past that cache, by one read after another or by several at a time, whichever is
// faster. get_again: the second get of the same segments.
Jobs cold(const Plan& plan, const std::string& transport);

// get_chain, get_chain_cold, for sizes of at most 64 MiB: a get of a prefix of 50 segments, as a
// conversation of 50 turns leaves, from memory and after a restart. The ceiling is a get of one
// segment of the same bytes.
Jobs chain(const Plan& plan, const std::string& transport);

// get_coded: the rate of rows, in the bytes that they had when they were pushed, of a get of coded
// rows from memory. The ceiling is a get of the same entries in bf16.
Jobs coded(const Plan& plan, const std::string& transport);

// commit: the time of commit() of a put of 1 MiB at each durability. commit_crowd: the average time
// between commits when eight clients commit such puts at the same time. put_sustained: consecutive
// puts, acknowledged at `wal` or `fsync`. The ceiling is a plain file written, and synced, as
// often.
Jobs commit(const Plan& plan, const std::string& transport);

// lookup: of a path of 32K tokens among plan.head_records head records, alone and while another
// client gets without pause. A known path is stored and has been looked up before. A new path is
// not stored and begins with a token of its own, so that all its blocks must be hashed.
Jobs lookup(const Plan& plan, const std::string& transport);

// get_beside_admin: hot gets of 1 MiB while the admin port answers 200 requests per second
// (/metrics, the status and lists), compared with gets while another precisd answers them.
// get_and_admin: the same, compared with gets without such requests.
Jobs admin(const Plan& plan, const std::string& transport);

// restart: from the start of a process, after a SIGKILL, until a path is found among
// plan.head_records head records. The store's files were copied just before, so they are in the
// page cache.
Jobs restart(const Plan& plan, const std::string& transport);

}  // namespace precis::bench
