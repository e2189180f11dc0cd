// Looks for what a kernel has left behind: pins that nobody released, lines that are still BUSY or being written,
// locked sets, blocks in two lines, commands without an end; and puts it, and what a lock chain has reported, into
// words.
//
// For the host, after kernels have ended and CacheRef::drain(); it changes nothing. The metadata must be readable by
// the host: of a cache whose metadata lie in a GPU's own memory, a copy (CacheOwner::audit() makes it).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "flashmob/gpu/cache_sets.h"
#include "flashmob/gpu/lock_chain.h"
#include "flashmob/gpu/share_table.h"

namespace flashmob::gpu {

struct CacheAudit {
  std::uint64_t lines = 0;
  std::uint64_t in_use = 0;    // lines that hold data
  std::uint64_t modified = 0;  // of these; not a leak, but lost if nobody flushes
  // Leaks.
  std::uint64_t pinned_lines = 0;
  std::uint64_t pins = 0;
  std::uint64_t busy = 0;
  std::uint64_t writing = 0;
  std::uint64_t commands = 0;  // in flight, or ended without anybody having looked
  std::uint64_t locked_sets = 0;
  std::uint64_t doubles = 0;   // blocks that two lines claim to hold
  std::uint64_t misplaced = 0;  // lines whose block belongs to another set

  bool clean() const {
    return pinned_lines + pins + busy + writing + commands + locked_sets + doubles + misplaced == 0;
  }
  CacheAudit& operator+=(const CacheAudit& other) {
    lines += other.lines;
    in_use += other.in_use;
    modified += other.modified;
    pinned_lines += other.pinned_lines;
    pins += other.pins;
    busy += other.busy;
    writing += other.writing;
    commands += other.commands;
    locked_sets += other.locked_sets;
    doubles += other.doubles;
    misplaced += other.misplaced;
    return *this;
  }
  // "" if there is nothing to say.
  std::string text() const {
    std::string text;
    const auto add = [&text](std::uint64_t n, const char* what) {
      if (n != 0) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + what;
    };
    add(pins, "pins not released");
    add(pinned_lines, "lines pinned");
    add(busy, "lines busy");
    add(writing, "lines being written");
    add(commands, "commands without an end");
    add(locked_sets, "sets locked");
    add(doubles, "blocks in two lines");
    add(misplaced, "lines in a wrong set");
    return text;
  }
};

template <class Policy, class Chain>
CacheAudit audit_cache(const CacheSets<Policy, Chain>& sets) {
  CacheAudit audit;
  audit.lines = sets.lines();
  std::map<std::uint64_t, std::uint64_t> holders;
  for (std::uint64_t i = 0; i < sets.lines(); ++i) {
    const std::uint64_t word = sets.line(i).state.value;
    const std::uint64_t tag = sets.tag(i).value;
    const bool holds = line::holds_data(word);
    audit.in_use += holds;
    audit.modified += line::state(word) == LineState::modified;
    audit.pinned_lines += line::pins(word) != 0;
    audit.pins += line::pins(word);
    audit.busy += line::state(word) == LineState::busy;
    audit.writing += line::writing(word);
    audit.commands += (sets.line(i).io.word.value & CacheLine::kTaken) == 0;
    if (tag != kNoTag) {
      audit.doubles += ++holders[tag] == 2;
      audit.misplaced += sets.set_of(tag) != sets.set_of_line(i);
    }
  }
  for (std::uint32_t s = 0; s < sets.geometry().sets; ++s) audit.locked_sets += sets.lock(s).value != 0;
  return audit;
}

struct ShareAudit {
  std::uint64_t entries = 0;
  std::uint64_t open = 0;   // buffers that are still in the table
  std::uint64_t users = 0;  // shares that were not closed

  bool clean() const { return open + users == 0; }
};

template <class Blocks, class Chain>
ShareAudit audit_shares(const ShareTable<Blocks, Chain>& table) {
  ShareAudit audit;
  audit.entries = table.entries();
  for (std::uint64_t i = 0; i < table.entries(); ++i) {
    const std::uint64_t word = table.entry(i).word.value;
    audit.open += word != 0;
    audit.users += word >> 32;
  }
  return audit;
}

// "" if no circular wait was seen and no lock was held while anything was waited for.
inline std::string describe(const ChainReport& report) {
  const auto name = [](std::uint64_t thing) {
    const std::string index = std::to_string(held_index(thing));
    switch (held_kind(thing)) {
      case HeldKind::lock:
        return "the lock of set " + index;
      case HeldKind::fill:
        return "the filling of line " + index;
      case HeldKind::share:
        return "the shared buffer " + index;
      default:
        return "a line of set " + index;
    }
  };
  std::string text;
  if (report.circular_waits.value != 0) {
    text = "circular wait:";
    for (std::uint32_t i = 0; i < report.links; ++i) {
      const std::uint32_t holder = report.link[i + 1 < report.links ? i + 1 : 0].thread;
      text += " thread " + std::to_string(report.link[i].thread) + " waits for " + name(report.link[i].thing) +
              ", held by thread " + std::to_string(holder) + ";";
    }
    text += '\n';
  }
  if (report.waits_with_locks.value != 0)
    text += std::to_string(report.waits_with_locks.value) + " waits with a lock held\n";
  return text;
}

inline std::string describe(const LockChain& chain) { return describe(chain.report()); }
inline std::string describe(const NoLockChain&) { return ""; }

}  // namespace flashmob::gpu
