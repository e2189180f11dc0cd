#include "atomicity/kill_load.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "atomicity/kill_drive.h"
#include "base/rng.h"
#include "media/block_content.h"

namespace flashmob::atomicity {
namespace {

using nvme::AdminOpcode;
using nvme::NvmOpcode;
using nvme::Status;

constexpr std::uint64_t kSeed = 7;
constexpr std::uint64_t kSectorsPerBlock = kLbaBytes / media::kSectorBytes;
constexpr std::uint32_t kForEver = ~0u;
constexpr std::uint32_t kNeverSeen = ~0u;  // the generation of what must not be written
constexpr std::uint64_t kShares = 2;
constexpr std::uint64_t kShare = kBlocks / kShares;
// Of a saved feature: Kelvin.
std::uint32_t threshold(std::uint32_t change) { return 250 + change % 100; }
// The format stays in every second Format, which has writes in flight.
std::uint32_t format_bytes(std::uint32_t formats) { return formats / 2 % 2 == 0 ? kLbaBytes : 512; }
std::uint32_t format_index(std::uint32_t lba_bytes) { return lba_bytes == 512 ? 0 : 1; }

[[noreturn]] void fail(Ledger& ledger, const std::string& why) {
  std::snprintf(ledger.failure.data(), ledger.failure.size(), "%s", why.c_str());
  std::abort();
}
void expect(Ledger& ledger, unsigned status, Status right, const char* what) {
  if (status != static_cast<unsigned>(right))
    fail(ledger, std::string(what) + " ended with status " + std::to_string(status));
}

void fill(std::span<std::byte> data, std::uint64_t block, std::uint32_t who, std::uint32_t generation) {
  media::fill_sectors(data, block * kSectorsPerBlock, who, generation, kSeed);
}
// Whose whole blocks these are; none where they are torn, misplaced or nobody's.
std::optional<media::BlockIdentity> whole(std::span<const std::byte> data, std::uint64_t block) {
  const auto found = media::identify_block(data.first(media::kSectorBytes));
  if (!found || media::check_sectors(data, block * kSectorsPerBlock, found->nsid, found->generation, kSeed) !=
                    media::kNoBadSector)
    return {};
  return found;
}
bool is_zero(std::span<const std::byte> data) {
  return std::all_of(data.begin(), data.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Writes its own share of the blocks, each block only when its last write is done: with and without FUA, and flushes.
class ShareWriter {
 public:
  ShareWriter(Lane& lane, Ledger& ledger, std::uint64_t share, std::uint64_t seed)
      : lane_(lane), ledger_(ledger), base_(share * kShare), rng_(seed) {}

  void run() {
    for (std::uint64_t turn = 0;; ++turn) {
      // The last slot is for flushes.
      const auto slot = static_cast<std::uint32_t>(turn % (Lane::kDepth - 1));
      while (busy_[slot]) lane_.poll();
      write(slot);
      if (turn % 64 == 63 && !busy_[Lane::kDepth - 1]) flush();
      lane_.ring();
    }
  }

 private:
  void write(std::uint32_t slot) {
    const std::uint64_t blocks = 1 + rng_.next() % (Lane::kSlotBytes / kLbaBytes);
    const std::uint64_t first = rng_.next() % (kShare - blocks + 1);
    const bool fua = rng_.next() % 4 == 0;
    if (std::any_of(&locked_[first], &locked_[first + blocks - 1] + 1, [](bool locked) { return locked; })) return;
    for (std::uint64_t i = first; i < first + blocks; ++i) {
      locked_[i] = true;
      fill(lane_.data(slot, blocks * kLbaBytes).subspan((i - first) * kLbaBytes, kLbaBytes), base_ + i, kBlocksNs,
           ++ledger_.asked[base_ + i]);
    }
    busy_[slot] = true;
    lane_.submit(
        slot, NvmOpcode::write, kBlocksNs, base_ + first, static_cast<std::uint32_t>(blocks), blocks * kLbaBytes,
        [=, this](unsigned status) { written(slot, first, blocks, fua, status); }, 0, fua);
  }
  void written(std::uint32_t slot, std::uint64_t first, std::uint64_t blocks, bool fua, unsigned status) {
    expect(ledger_, status, Status::success, "a write");
    for (std::uint64_t i = first; i < first + blocks; ++i) {
      locked_[i] = false;
      const std::uint32_t generation = ledger_.asked[base_ + i];
      ledger_.written[base_ + i] = generation;
      if (fua) ledger_.durable[base_ + i] = generation;
    }
    ledger_.fua_writes += fua ? 1 : 0;
    busy_[slot] = false;
  }
  void flush() {
    for (std::uint64_t i = 0; i < kShare; ++i) before_flush_[i] = ledger_.written[base_ + i];
    busy_[Lane::kDepth - 1] = true;
    lane_.submit(Lane::kDepth - 1, NvmOpcode::flush, kBlocksNs, 0, 0, 0, [this](unsigned status) {
      expect(ledger_, status, Status::success, "a flush");
      for (std::uint64_t i = 0; i < kShare; ++i) {
        std::atomic<std::uint32_t>& durable = ledger_.durable[base_ + i];
        durable = std::max(durable.load(), before_flush_[i]);
      }
      ++ledger_.flushes;
      busy_[Lane::kDepth - 1] = false;
    });
  }

  Lane& lane_;
  Ledger& ledger_;
  const std::uint64_t base_;
  Rng rng_;
  std::array<bool, kShare> locked_{};
  std::array<bool, Lane::kDepth> busy_{};
  std::array<std::uint32_t, kShare> before_flush_{};
};

// Plain writes of the contested block. What a fused pair makes of one says which plain write it has seen, so no pair
// may show an older one once this one is done.
void write_plainly(Lane& lane, Ledger& ledger, bool fua, std::uint32_t writes) {
  while (ledger.plain.done < writes) {
    const std::uint32_t generation = ++ledger.plain.asked;
    fill(lane.data(0, kLbaBytes), kContested, kBlocksNs, generation);
    const unsigned status = lane.run(NvmOpcode::write, kBlocksNs, kContested, 1, kLbaBytes, fua || generation % 4 == 0);
    expect(ledger, status, Status::success, "a plain write");
    ledger.plain.done = generation;
    for (int look = 0; look < 4; ++look) {
      const unsigned read = lane.run(NvmOpcode::read, kBlocksNs, kContested, 1, kLbaBytes);
      expect(ledger, read, Status::success, "a read of the contested block");
      const auto found = whole(lane.data(0, kLbaBytes), kContested);
      if (!found) fail(ledger, "the contested block is torn");
      if (found->generation != generation)
        fail(ledger, "plain write " + std::to_string(generation) + " was lost to a fused pair that had seen " +
                         std::to_string(found->generation));
    }
  }
}

void write_fused(Lane& lane, Ledger& ledger, std::uint32_t writes) {
  for (std::uint32_t turn = 0; ledger.plain.done < writes; ++turn) {
    const unsigned read = lane.run(NvmOpcode::read, kBlocksNs, kContested, 1, kLbaBytes);
    expect(ledger, read, Status::success, "a read of the contested block");
    const auto found = whole(lane.data(0, kLbaBytes), kContested);
    if (!found) {
      if (!is_zero(lane.data(0, kLbaBytes))) fail(ledger, "the contested block is torn");
      continue;
    }
    fill(lane.data(1, kLbaBytes), kContested, kBlocksNs + 1 + turn % 1000, found->generation);
    unsigned compared = 0, written = 0;
    const auto compare = [&](unsigned status) { compared = status; };
    const auto write = [&](unsigned status) { written = status; };
    lane.submit(0, NvmOpcode::compare, kBlocksNs, kContested, 1, kLbaBytes, compare, nvme::kFlagFuseFirst);
    lane.submit(1, NvmOpcode::write, kBlocksNs, kContested, 1, kLbaBytes, write, nvme::kFlagFuseSecond);
    lane.drain();
    ++(compared == 0 ? ledger.fused_done : ledger.fused_failed);
    expect(ledger, compared, compared == 0 ? Status::success : Status::compare_failure, "a fused compare");
    expect(ledger, written, compared == 0 ? Status::success : Status::aborted_failed_fused, "a fused write");
  }
}

// Format with writes in flight: those that it ends must not land afterwards.
void format_once(Drive& drive, Lane& lane, Ledger& ledger, Rng& rng) {
  const std::uint32_t before = ledger.formats.done, bytes = format_bytes(before);
  std::array<std::uint64_t, Lane::kDepth> pages{};
  std::array<unsigned, Lane::kDepth> statuses{};
  for (std::uint32_t slot = 0; before % 2 == 0 && slot < Lane::kDepth; ++slot) {
    pages[slot] = rng.next() % (kFormatted / Lane::kDepth) * Lane::kDepth + slot;
    fill(lane.data(slot, kLbaBytes), pages[slot], kFormattedNs, before);
    lane.submit(slot, NvmOpcode::write, kFormattedNs, pages[slot] * (kLbaBytes / bytes), kLbaBytes / bytes, kLbaBytes,
                [&statuses, slot](unsigned status) { statuses[slot] = status; });
  }
  lane.ring();
  ledger.formats.asked = before + 1;
  expect(ledger, drive.admin(AdminOpcode::format_nvm, kFormattedNs, format_index(format_bytes(before + 1))),
         Status::success, "a Format");
  ledger.formats.done = before + 1;
  lane.drain();
  for (std::uint32_t slot = 0; slot < Lane::kDepth; ++slot) {
    if (statuses[slot] == 0) continue;
    ++ledger.cut_by_format;
    expect(ledger,
           lane.run(NvmOpcode::read, kFormattedNs, pages[slot] * (kLbaBytes / bytes), kLbaBytes / bytes, kLbaBytes),
           Status::success, "a read after a Format");
    if (!is_zero(lane.data(0, kLbaBytes))) fail(ledger, "a write that a Format ended has landed");
  }
}

void change_feature(Drive& drive, Ledger& ledger) {
  constexpr std::uint32_t kSave = 1u << 31;
  const std::uint32_t change = ++ledger.feature.asked;
  const auto feature = static_cast<std::uint32_t>(nvme::Feature::temperature_threshold);
  expect(ledger, drive.admin(AdminOpcode::set_features, 0, feature | kSave, threshold(change)), Status::success,
         "a saved feature");
  ledger.feature.done = change;
}

// The state after `changes` is changes % 2; what is written while it is on never shows.
void change_protection(Drive& drive, Lane& lane, Ledger& ledger) {
  const std::uint32_t change = ledger.protect.done + 1;
  ledger.protect.asked = change;
  const auto feature = static_cast<std::uint32_t>(nvme::Feature::namespace_write_protection);
  expect(ledger, drive.admin(AdminOpcode::set_features, kProtectedNs, feature, change % 2), Status::success,
         "write protection");
  ledger.protect.done = change;
  const bool is_on = change % 2 != 0;
  const std::uint32_t generation = is_on ? kNeverSeen : ++ledger.guarded.asked;
  fill(lane.data(0, kLbaBytes), 0, kProtectedNs, generation);
  expect(ledger, lane.run(NvmOpcode::write, kProtectedNs, 0, 1, kLbaBytes),
         is_on ? Status::namespace_is_write_protected : Status::success, "a write of what is protected now and then");
  if (!is_on) ledger.guarded.done = generation;
}

using Wrongs = std::vector<std::string>;

void check_blocks(const Scene& scene, Drive& drive, const Ledger& ledger, Wrongs& wrongs) {
  Lane& lane = drive.lane(0);
  constexpr std::uint32_t kAtOnce = Lane::kSlotBytes / kLbaBytes;
  unsigned status = 0;
  for (std::uint64_t lba = 0; lba < kBlocks; ++lba) {
    if (lba % kAtOnce == 0) status = lane.run(NvmOpcode::read, kBlocksNs, lba, kAtOnce, Lane::kSlotBytes);
    const auto data = lane.data(0, Lane::kSlotBytes).subspan(lba % kAtOnce * kLbaBytes, kLbaBytes);
    const std::uint32_t asked = ledger.asked[lba];
    const std::uint32_t least = scene.keeps_what_is_written() ? ledger.written[lba] : ledger.durable[lba];
    const auto found = whole(data, lba);
    if (status == 0 && !found && least == 0 && is_zero(data)) continue;
    if (status == 0 && found && found->generation >= least && found->generation <= asked) continue;
    wrongs.push_back("block " + std::to_string(lba) + " (kept from " + std::to_string(least) + ", asked " +
                     std::to_string(asked) + "): " +
                     (status != 0 ? "status " + std::to_string(status)
                      : found     ? "generation " + std::to_string(found->generation)
                                  : "torn or damaged"));
  }
}

void check_contested(Drive& drive, const Ledger& ledger, Wrongs& wrongs) {
  Lane& lane = drive.lane(0);
  const unsigned status = lane.run(NvmOpcode::read, kBlocksNs, kContested, 1, kLbaBytes);
  const auto data = lane.data(0, kLbaBytes);
  const auto found = whole(data, kContested);
  const std::uint32_t done = ledger.plain.done, asked = ledger.plain.asked;
  if (status == 0 && !found && done == 0 && is_zero(data)) return;
  if (status != 0 || !found || found->generation < done || found->generation > asked)
    wrongs.push_back("the contested block (plain writes " + std::to_string(done) + " to " + std::to_string(asked) +
                     "): " + (found ? "shows " + std::to_string(found->generation) : "torn or damaged"));
}

// What was written before the last Format but one is gone for certain; commands that were not yet fetched may follow
// one.
void check_formatted(Drive& drive, const Ledger& ledger, Wrongs& wrongs) {
  Lane& lane = drive.lane(0);
  const std::uint32_t done = ledger.formats.done, asked = ledger.formats.asked;
  const std::uint32_t bytes = drive.lba_bytes(kFormattedNs);
  if (bytes != format_bytes(done) && bytes != format_bytes(asked))
    wrongs.push_back("blocks of " + std::to_string(bytes) + " bytes after Format " + std::to_string(done));
  for (std::uint64_t page = 0; page < kFormatted; ++page) {
    const std::uint32_t blocks = kLbaBytes / bytes;
    if (lane.run(NvmOpcode::read, kFormattedNs, page * blocks, blocks, kLbaBytes) != 0)
      wrongs.push_back("page " + std::to_string(page) + " cannot be read after Format " + std::to_string(done));
    for (std::uint64_t i = 0; i < kSectorsPerBlock; ++i) {
      const auto sector =
          std::span<const std::byte>(lane.data(0, kLbaBytes)).subspan(i * media::kSectorBytes, media::kSectorBytes);
      if (is_zero(sector)) continue;
      const auto found = media::identify_block(sector);
      if (!found || found->lba != page * kSectorsPerBlock + i || found->generation + 1 < done ||
          found->generation > asked)
        wrongs.push_back("page " + std::to_string(page) + " after Format " + std::to_string(done) + ": " +
                         (found ? "of before Format " + std::to_string(found->generation + 1) : "damaged"));
    }
  }
}

void check_settings(Drive& drive, const Ledger& ledger, Wrongs& wrongs) {
  const std::uint32_t value =
      drive.driver().get_feature(static_cast<std::uint8_t>(nvme::Feature::temperature_threshold));
  const std::uint32_t done = ledger.feature.done, asked = ledger.feature.asked;
  // Several processes may have died in a change, each of another value.
  bool is_known = done == 0;
  for (std::uint32_t change = done; change <= asked; ++change) is_known = is_known || value == threshold(change);
  if (!is_known)
    wrongs.push_back("a saved feature is " + std::to_string(value) + " after change " + std::to_string(done));
  const auto feature = static_cast<std::uint8_t>(nvme::Feature::namespace_write_protection);
  const std::uint32_t state = drive.driver().get_feature(feature, 0, 0, kProtectedNs);
  if (state != ledger.protect.done % 2 && state != ledger.protect.asked % 2)
    wrongs.push_back("write protection is " + std::to_string(state) + " after change " +
                     std::to_string(ledger.protect.done));
  Lane& lane = drive.lane(0);
  const unsigned status = lane.run(NvmOpcode::read, kProtectedNs, 0, 1, kLbaBytes);
  const auto data = lane.data(0, kLbaBytes);
  const auto found = whole(data, 0);
  const std::uint32_t generation = found ? found->generation : 0;
  if (status != 0 || (!found && !is_zero(data)) || generation < ledger.guarded.done ||
      generation > ledger.guarded.asked)
    wrongs.push_back("the protected block shows generation " + std::to_string(generation) + " after " +
                     std::to_string(ledger.guarded.done));
}

}  // namespace

void write_until_killed(const Scene& scene, Ledger& ledger, std::uint64_t seed) {
  Drive drive(scene, &ledger.steps);
  std::vector<std::thread> writers;
  std::array<std::unique_ptr<ShareWriter>, kShares> shares;
  for (std::uint64_t share = 0; share < kShares; ++share) {
    shares[share] =
        std::make_unique<ShareWriter>(drive.lane(static_cast<std::uint32_t>(share)), ledger, share, seed + share);
    writers.emplace_back([&, share] { shares[share]->run(); });
  }
  writers.emplace_back([&] { write_plainly(drive.lane(2), ledger, !scene.keeps_what_is_written(), kForEver); });
  writers.emplace_back([&] { write_fused(drive.lane(3), ledger, kForEver); });
  // Formats, features and protection are kept beside file: media only.
  Rng rng(seed + kShares);
  while (scene.media == "file") {
    format_once(drive, drive.lane(4), ledger, rng);
    change_feature(drive, ledger);
    change_protection(drive, drive.lane(4), ledger);
  }
  for (std::thread& writer : writers) writer.join();
  std::abort();
}

void fight_over_a_block(const Scene& scene, Ledger& ledger, std::uint32_t writes) {
  {
    Drive drive(scene);
    std::thread fused([&] { write_fused(drive.lane(3), ledger, writes); });
    write_plainly(drive.lane(2), ledger, false, writes);
    fused.join();
  }
  ::_exit(0);
}

std::vector<std::string> what_is_wrong(const Scene& scene, const Ledger& ledger) {
  Wrongs wrongs;
  Drive drive(scene);
  check_blocks(scene, drive, ledger, wrongs);
  check_contested(drive, ledger, wrongs);
  if (scene.media == "file") {
    check_formatted(drive, ledger, wrongs);
    check_settings(drive, ledger, wrongs);
  }
  return wrongs;
}

}  // namespace flashmob::atomicity
