// One client of the soak: a process of its own that attaches to a door, keeps a queue busy with reads and writes of its
// own part of the namespace, and knows of each sector what it must hold.
//
// Every sector says whose it is, where it belongs and which write it comes from, so that a client that finds what a
// killed predecessor left can tell whole sectors from torn or misplaced ones. One thread, in the child process; the
// notes are shared with the parent.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace flashmob::soak {

// What a client tells its parent, in memory that both have. The text is written before `failed`.
struct ClientNotes {
  std::atomic<std::uint64_t> attaches;
  std::atomic<std::uint64_t> completions;
  std::atomic<std::uint64_t> sectors_checked;
  std::atomic<std::uint64_t> longest_attach_ns;  // until the queue was there
  std::atomic<std::uint64_t> longest_command_ns;
  std::atomic<std::uint32_t> failed;
  std::array<char, 512> failure;
};

enum class Leave : std::uint8_t {
  killed,  // goes on until its parent kills it
  orderly,  // deletes its queue and shuts the controller down
  suddenly,  // exits with commands in flight
  resets,  // resets the controller under load, goes on with a new queue, then leaves in order
};

struct ClientPlan {
  std::string target;  // as BenchOptions::target
  std::uint32_t part = 0;  // which part of the namespace is its own
  std::uint32_t seed = 1;
  std::uint64_t life_ms = 0;  // for all but the killed
  Leave leave = Leave::killed;
  bool fresh = false;  // the part holds nothing yet: write all of it, then leave in order
};

// The namespace must have room for `parts` of them.
inline constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 20;

// Runs the client to its end; true if all was right. What was wrong is in the notes.
bool run_client(const ClientPlan& plan, ClientNotes& notes);

}  // namespace flashmob::soak
