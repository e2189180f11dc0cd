#include "soak/hosts/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace flashmob::soak {
namespace {

constexpr const char* kNames[] = {
    "attaches",        "reads",   "writes",      "fua_writes",     "zeroes",     "discards",      "flushes",
    "sectors_checked", "errors",  "losses",      "resets",         "reattaches", "creates",       "deletes",
    "attachments",     "formats", "protections", "refused_writes", "races",      "races_refused", "opens",
    "descriptors",     "threads", "mappings",    "memory_bytes",
};
static_assert(std::size(kNames) == static_cast<std::size_t>(Count::kinds));

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

}  // namespace

// In this order, so that a host that is killed in between has claimed too little rather than too much.
void Ledger::begin(std::uint32_t sector, std::uint64_t number, bool zero) {
  SectorState& state = sectors.at(sector);
  state.may_be_zero = state.may_be_zero || zero;
  std::atomic_ref(state.asked).store(number);
}

void Ledger::end(std::uint32_t sector, bool zero) {
  SectorState& state = sectors.at(sector);
  state.is_zero = zero;
  std::atomic_ref(state.acknowledged).store(state.asked);
  state.may_be_zero = false;
}

std::string Ledger::judge(std::uint32_t part, std::uint32_t sector, const std::uint64_t* words) const {
  const SectorState& state = sectors.at(sector);
  const bool open = state.asked != state.acknowledged;
  const bool fresh = state.acknowledged == 0;
  if (is_filled(words, 0) && (fresh || state.is_zero || (open && state.may_be_zero))) return {};
  std::array<std::uint64_t, kSectorWords> right;
  const std::uint64_t number = words[0];
  fill_sector(right.data(), part, sector, number);
  const bool whole = std::equal(right.begin(), right.end(), words);
  if (whole && number == state.acknowledged && !state.is_zero) return {};
  if (whole && open && number > state.acknowledged && number <= state.asked) return {};
  std::uint32_t whose = 0, where = 0;
  const bool known = is_whole(words, whose, where);
  return "part " + std::to_string(part) + ", sector " + std::to_string(sector) + ": write " +
         std::to_string(state.acknowledged) + (state.is_zero ? " (zeroes)" : "") + " was acknowledged, " +
         std::to_string(state.asked) + " asked for, and there is " +
         (is_filled(words, 0) ? "nothing but zeroes"
          : known ? "write " + std::to_string(number) + " of part " + std::to_string(whose) + ", sector " +
                        std::to_string(where)
                  : "what nobody wrote (" + std::to_string(words[0]) + ", " + std::to_string(words[1]) + ")");
}

Ledger& open_ledger(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(Ledger)) != 0) throw std::runtime_error("no ledger " + path);
  void* const memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory for the ledger " + path);
  return *static_cast<Ledger*>(memory);
}

void print_counts(const Ledger& ledger) {
  const char* before = "{";
  for (std::size_t i = 0; i < std::size(kNames); ++i, before = ", ")
    std::printf("%s\"%s\": %llu", before, kNames[i], static_cast<unsigned long long>(ledger.counts[i].load()));
  std::printf("}\n");
}

void fill_sector(std::uint64_t* words, std::uint32_t part, std::uint32_t sector, std::uint64_t number) {
  words[0] = number;
  words[1] = std::uint64_t{part} << 32 | sector;
  const std::uint64_t key = mix(words[0] ^ mix(words[1]));
  for (std::uint32_t i = 2; i < kSectorWords; ++i) words[i] = mix(key + i);
}

bool is_whole(const std::uint64_t* words, std::uint32_t& part, std::uint32_t& sector) {
  part = static_cast<std::uint32_t>(words[1] >> 32);
  sector = static_cast<std::uint32_t>(words[1]);
  std::array<std::uint64_t, kSectorWords> right;
  fill_sector(right.data(), part, sector, words[0]);
  return std::equal(right.begin(), right.end(), words);
}

bool is_filled(const std::uint64_t* words, std::uint64_t with) {
  return std::all_of(words, words + kSectorWords, [=](std::uint64_t word) { return word == with; });
}

}  // namespace flashmob::soak
