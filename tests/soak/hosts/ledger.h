// What the hosts of the mixed soak know of a part of a namespace, in a file that outlives each of them: of each sector
// the write that was acknowledged last, and those that may have been carried out since. A host that is killed so leaves
// its successor with what it must find. One host a part at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace flashmob::soak {

inline constexpr std::uint32_t kSectorBytes = 512;
inline constexpr std::uint32_t kSectorWords = kSectorBytes / sizeof(std::uint64_t);
inline constexpr std::uint32_t kPageBytes = 4096;
inline constexpr std::uint32_t kSectorsPerPage = kPageBytes / kSectorBytes;
inline constexpr std::uint32_t kPartPages = 256;
inline constexpr std::uint32_t kPartSectors = kPartPages * kSectorsPerPage;

// What a host has done; names are in ledger.cpp, in the same order.
enum class Count : std::uint32_t {
  attaches,
  reads,
  writes,
  fua_writes,
  zeroes,
  discards,
  flushes,
  sectors_checked,
  errors,
  losses,
  resets,
  reattaches,
  creates,
  deletes,
  attachments,
  formats,
  protections,
  refused_writes,
  races,
  races_refused,
  opens,
  descriptors,
  threads,
  mappings,
  memory_bytes,
  kinds,
};

struct SectorState {
  std::uint64_t acknowledged;  // the number of a write; 0: nothing was ever written
  std::uint64_t asked;  // the number of the last one that was submitted; equal to the first when none is open
  bool is_zero;  // what is acknowledged made zeroes
  bool may_be_zero;  // ... one that was submitted since might have
};

struct Ledger {
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Count::kinds)> counts;
  std::atomic<std::uint64_t> sequence;
  std::array<SectorState, kPartSectors> sectors;

  void add(Count kind, std::uint64_t more = 1) {
    counts[static_cast<std::size_t>(kind)].fetch_add(more, std::memory_order_relaxed);
  }
  void set(Count kind, std::uint64_t value) { counts[static_cast<std::size_t>(kind)].store(value); }
  void begin(std::uint32_t sector, std::uint64_t number, bool zero);
  void end(std::uint32_t sector, bool zero);
  // What is wrong with what was found in a sector; empty where nothing is.
  std::string judge(std::uint32_t part, std::uint32_t sector, const std::uint64_t* words) const;
};

// Maps a ledger's file, which is made where it is missing.
Ledger& open_ledger(const std::string& path);
// Prints names and values of the counts as one JSON object.
void print_counts(const Ledger& ledger);

// Sector `sector` of part `part` as write number `number` leaves it. Parts have numbers of their own in the whole soak,
// so that another host's data are known as such wherever they turn up.
void fill_sector(std::uint64_t* words, std::uint32_t part, std::uint32_t sector, std::uint64_t number);
// True if the sector is a whole one of any part; says which.
bool is_whole(const std::uint64_t* words, std::uint32_t& part, std::uint32_t& sector);
bool is_filled(const std::uint64_t* words, std::uint64_t with);

}  // namespace flashmob::soak
