// What every part of ./dev bench is told, and what it does. Each is one file.
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
  std::vector<std::size_t> clients;  // that put and get at a time
  std::size_t rounds = 0;            // counted, after one that is not; report.py asks several times
  std::string dir;                   // a folder of ours on the disk that is measured
  std::size_t sustained_bytes = 0;   // put one after the other, to see what the disk takes
  std::size_t head_records = 0;      // stored beside what is looked up
  std::size_t samples = 0;           // requests whose quantiles make one figure
  std::function<void(const std::string& what)> began;
};

// What succeeds or fails by itself. `owed`: the rows that measure() prints, without rounds, so that
// a figure that could not be measured is told as well. kUnsupported where this machine cannot do
// it.
struct Job {
  std::vector<Row> owed;
  std::function<Status()> measure;
};
using Jobs = std::vector<Job>;

// The parts. transport: "shm" or "tcp". The plan outlives the jobs.

// put, put_ingest (bytes taken in, until the last layer() returned) and get_hot, of every size and
// number of clients; get_by_path (the same with the lookup of its path, as peers find what is got
// by its name) of one client. The recipe keeps everything and scores by position, so that what is
// measured is the data plane. Put is out of memory that the client allocated; put_foreign is out of
// other memory. Get ends when the reader has checked the last layer. Of one client, from
// 64 MiB on, also what the cores do of both without a service (bare.h): put_bare and get_bare.
//
// Put ends with the commit at `memory`: stored as its recipe says and there for every get, but not
// yet on the disk. One client's puts of a round fit what precisd may hold ahead of the disk (a
// quarter of its memory, which grows with what is put) and reach it off the clock, before their
// removal returns. Those of eight clients do not from 64 MiB on, and wait for the disk.
Jobs put_get(const Plan& plan, const std::string& transport);

// put_compressed: put of 8K tokens with lagkv and keydiff at 20%, out of allocated memory and
// committed at `memory`, beside the slower of the bytes' way alone and the stages alone.
Jobs put_compressed(const Plan& plan, const std::string& transport);

// lookup_get: lookup and get of 64 KiB, one after the other, precisd and client on one core and on
// two, beside two raw exchanges of messages of such sizes between processes that are placed alike.
Jobs ping_pong(const Plan& plan, const std::string& transport);

// first_layer: from get() of a prefix of 32 layers to its first layer checked, beside one layer's
// share of the whole get, or of the transport's ceiling where that is faster: a get that is slow
// allows its first layer no more time.
Jobs first_layer(const Plan& plan, const std::string& transport);

// server_cpu: what precisd's threads take per GB that is got, beside one thread's memcpy.
Jobs server_cpu(const Plan& plan, const std::string& transport);

// get_cold, of every size: after a restart, with nothing in the machine's cache, beside the disk
// read around that cache, by one read after the other or by several at a time, whichever is faster.
// get_again: the second get of the same.
Jobs cold(const Plan& plan, const std::string& transport);

// commit: what commit() takes of a put of 1 MiB at each durability. commit_crowd: the time from one
// to the next where eight clients commit such puts at once. put_sustained: puts one after the
// other, each acknowledged at `wal` or `fsync`. Beside a plain file written, and synced, as often.
Jobs commit(const Plan& plan, const std::string& transport);

// lookup: of a path of 32K tokens among plan.head_records head records, while another client gets
// without pause, and alone. The path is stored and was asked for before (known), or begins like no
// other and is not stored (new), so that its every block must be hashed.
Jobs lookup(const Plan& plan, const std::string& transport);

// restart: from the begin of a process, after a SIGKILL, until a path is found among
// plan.head_records head records. Its files were copied a moment before, so the machine's cache has
// them.
Jobs restart(const Plan& plan, const std::string& transport);

}  // namespace precis::bench
