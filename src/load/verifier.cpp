#include "load/verifier.h"

#include <algorithm>

#include "media/block_content.h"
#include "media/page_access.h"

namespace flashmob::load {

using media::kSectorBytes;

Verifier::Verifier(TruthSource source, std::uint64_t bytes, std::uint32_t nsid, std::uint64_t seed, bool with_writes,
                   std::span<const std::byte> file)
    : source_(source), nsid_(nsid), seed_(seed), file_(file) {
  if (source == TruthSource::none || !with_writes) return;
  table_memory_ = memory::HostMemory(bytes / kSectorBytes * sizeof(std::uint32_t));
  table_ = reinterpret_cast<std::uint32_t*>(table_memory_.data());
}

bool Verifier::hold_read(std::uint64_t first_sector, std::uint32_t sectors) {
  if (table_ == nullptr) return true;
  for (std::uint32_t i = 0; i < sectors; ++i) {
    auto word = entry(first_sector + i);
    std::uint32_t seen = word.load(std::memory_order_relaxed);
    do {
      if ((seen & (kWriting | kUnknown)) != 0 || (seen & kReaderMask) >= kReaderMask - kReader) {
        release_read(first_sector, i);
        return false;
      }
    } while (!word.compare_exchange_weak(seen, seen + kReader, std::memory_order_acquire));
  }
  return true;
}

void Verifier::release_read(std::uint64_t first_sector, std::uint32_t sectors) {
  if (table_ == nullptr) return;
  for (std::uint32_t i = 0; i < sectors; ++i) {
    auto word = entry(first_sector + i);
    std::uint32_t seen = word.load(std::memory_order_relaxed);
    while ((seen & kReaderMask) != kReaderMask &&
           !word.compare_exchange_weak(seen, seen - kReader, std::memory_order_release)) {
    }
  }
}

bool Verifier::hold_write(std::uint64_t first_sector, std::uint32_t sectors) {
  if (table_ == nullptr) return true;
  for (std::uint32_t i = 0; i < sectors; ++i) {
    auto word = entry(first_sector + i);
    std::uint32_t seen = word.load(std::memory_order_relaxed);
    do {
      if ((seen & (kWriting | kReaderMask)) != 0) {
        for (std::uint32_t held = 0; held < i; ++held)
          entry(first_sector + held).fetch_and(~kWriting, std::memory_order_release);
        return false;
      }
    } while (!word.compare_exchange_weak(seen, (seen | kWriting) & ~kSpoiled, std::memory_order_acquire));
  }
  return true;
}

void Verifier::fill_write(std::span<std::byte> buffer, std::uint64_t first_sector) const {
  for (std::size_t at = 0; at < buffer.size(); at += kSectorBytes) {
    const std::uint64_t sector = first_sector + at / kSectorBytes;
    const std::uint32_t generation =
        table_ == nullptr ? 0 : generation_after(entry(sector).load(std::memory_order_relaxed) & kGenerationMask);
    media::fill_block(buffer.subspan(at, kSectorBytes), {sector, nsid_, generation, seed_});
  }
}

void Verifier::release_write(std::uint64_t first_sector, std::uint32_t sectors, bool stored) {
  if (table_ == nullptr) return;
  for (std::uint32_t i = 0; i < sectors; ++i) {
    auto word = entry(first_sector + i);
    std::uint32_t seen = word.load(std::memory_order_relaxed);
    std::uint32_t next = 0;
    do {
      const std::uint32_t generation = seen & kGenerationMask;
      next = (seen & kReaderMask) | (stored ? generation_after(generation) : generation);
      if (!stored || (seen & kSpoiled) != 0) next |= kUnknown;
    } while (!word.compare_exchange_weak(seen, next, std::memory_order_release));
  }
}

void Verifier::hold_unverified(std::uint64_t first_sector, std::uint32_t sectors) {
  if (table_ == nullptr) return;
  for (std::uint32_t i = 0; i < sectors; ++i) {
    auto word = entry(first_sector + i);
    std::uint32_t seen = word.load(std::memory_order_relaxed);
    std::uint32_t next = 0;
    do {
      next = seen | kUnknown | kSpoiled;
      if ((seen & kReaderMask) != kReaderMask) next += kReader;
    } while (!word.compare_exchange_weak(seen, next, std::memory_order_acq_rel));
  }
}

std::optional<std::string> Verifier::check(std::span<const std::byte> data, std::uint64_t first_sector) const {
  if (source_ == TruthSource::none) return std::nullopt;
  if (table_ == nullptr && source_ == TruthSource::content) {
    const std::uint64_t bad = media::check_sectors(data, first_sector, nsid_, 0, seed_);
    if (bad == media::kNoBadSector) return std::nullopt;
    return media::explain_mismatch(data.subspan((bad - first_sector) * kSectorBytes, kSectorBytes),
                                   {bad, nsid_, 0, seed_});
  }
  for (std::size_t at = 0; at < data.size(); at += kSectorBytes) {
    const std::uint64_t sector = first_sector + at / kSectorBytes;
    const auto block = data.subspan(at, kSectorBytes);
    const std::uint32_t state = table_ == nullptr ? 0 : entry(sector).load(std::memory_order_relaxed);
    if ((state & kUnknown) != 0) continue;
    const std::uint32_t generation = state & kGenerationMask;
    if (source_ == TruthSource::file && generation == 0) {
      const std::uint64_t offset = sector * kSectorBytes;
      const auto there = offset >= file_.size()
                             ? std::span<const std::byte>{}
                             : file_.subspan(offset, std::min<std::size_t>(kSectorBytes, file_.size() - offset));
      bool same = false;
      if (!media::try_access([&] { same = std::equal(there.begin(), there.end(), block.begin()); }))
        return "sector " + std::to_string(sector) +
               ": the file to verify against has been cut short, or cannot be read";
      // Beyond the file's end the last block reads as zeroes.
      for (std::size_t i = there.size(); i < kSectorBytes; ++i) same &= block[i] == std::byte{0};
      if (!same) return "sector " + std::to_string(sector) + ": differs from the file";
      continue;
    }
    const media::BlockIdentity expected{sector, nsid_, generation, seed_};
    if (media::check_block(block, expected) != media::BlockVerdict::ok) return media::explain_mismatch(block, expected);
  }
  return std::nullopt;
}

}  // namespace flashmob::load
