#include "simulation/transfer.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace flashmob::simulation {
namespace {

using nvme::SglDescriptor;
using nvme::SglType;
using nvme::Status;

constexpr std::byte kPaint{0xEE};
constexpr std::uint64_t kUnmapped = 0x1000;  // no process has memory there

SglDescriptor descriptor(SglType type, std::uint64_t address, std::uint64_t bytes) {
  return {address, static_cast<std::uint32_t>(bytes), {}, static_cast<std::uint8_t>(static_cast<unsigned>(type) << 4)};
}

}  // namespace

std::vector<std::uint64_t> Slot::shuffled_pages(Rng& rng, std::uint64_t count) const {
  std::vector<std::uint64_t> pages(data_pages_);
  for (std::uint64_t i = 0; i < data_pages_; ++i) pages[i] = i;
  for (std::uint64_t i = 0; i < count; ++i) std::swap(pages[i], pages[i + rng.below(data_pages_ - i)]);
  pages.resize(count);
  return pages;
}

Status Slot::describe(Rng& rng, nvme::Sqe& sqe, std::uint64_t bytes, bool to_host, bool damage) {
  pieces_.clear();
  return rng.below(3) == 0 ? describe_sgl(rng, sqe, bytes, to_host, damage) : describe_prp(rng, sqe, bytes, damage);
}

Status Slot::describe_prp(Rng& rng, nvme::Sqe& sqe, std::uint64_t bytes, bool damage) {
  const std::uint64_t offset = rng.below(2) == 0 ? 0 : rng.below(kPage / 4) * 4;
  const std::uint64_t count = (offset + bytes + kPage - 1) / kPage;
  const auto pages = shuffled_pages(rng, count);
  std::vector<std::uint64_t*> entries{&sqe.prp1};
  sqe.prp1 = iova(data(pages[0] * kPage)) + offset;
  sqe.prp2 = rng.next();  // ignored where PRP1 covers everything
  if (count == 2) {
    sqe.prp2 = iova(data(pages[1] * kPage));
    entries.push_back(&sqe.prp2);
  } else if (count > 2) {
    // The list begins anywhere in its page, and goes on in another when it meets the page's end.
    std::uint64_t at = rng.below(2) == 0 ? rng.below(kPage / 8) * 8 : kPage - 8 * (1 + rng.below(count));
    std::uint64_t list_page = 0;
    sqe.prp2 = iova(list(at));
    entries.push_back(&sqe.prp2);
    for (std::uint64_t i = 1; i < count; ++i) {
      if (at % kPage == kPage - 8 && i + 1 < count) {
        auto* link = reinterpret_cast<std::uint64_t*>(list(list_page * kPage + at));
        at = 0;
        ++list_page;
        *link = iova(list(list_page * kPage));
        entries.push_back(link);
      }
      auto* entry = reinterpret_cast<std::uint64_t*>(list(list_page * kPage + at));
      *entry = iova(data(pages[i] * kPage));
      entries.push_back(entry);
      at += 8;
    }
  }
  std::uint64_t left = bytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t from = i == 0 ? offset : 0;
    const std::uint64_t piece = std::min(left, kPage - from);
    pieces_.push_back({data(pages[i] * kPage + from), piece});
    left -= piece;
  }
  if (!damage) return Status::success;
  // Entries are checked in order, so one bad one is found, whichever it is.
  std::uint64_t& victim = *entries[rng.below(entries.size())];
  if (rng.below(2) == 0) {
    victim = kUnmapped;
    return Status::data_transfer_error;
  }
  // PRP1 must be a multiple of four, a list pointer of eight, and everything else the start of a page.
  victim |= 1 + rng.below(3);
  return Status::prp_offset_invalid;
}

Status Slot::describe_sgl(Rng& rng, nvme::Sqe& sqe, std::uint64_t bytes, bool to_host, bool damage) {
  sqe.flags = static_cast<std::uint8_t>(sqe.flags | nvme::kFlagPsdtSglBufferMetadata);
  // Cuts the transfer into pieces that lie in increasing places with gaps between them.
  std::vector<SglDescriptor> blocks;
  const std::uint64_t count = rng.below(3) == 0 ? 1 : 1 + rng.below(12);
  std::uint64_t slack = data_pages_ * kPage - bytes;
  std::uint64_t at = 0;
  for (std::uint64_t left = bytes; left > 0;) {
    const bool last = blocks.size() + 1 >= count;
    const std::uint64_t length = last ? left : std::min(left, 1 + rng.below(bytes));
    const std::uint64_t gap = rng.below(std::min<std::uint64_t>(slack + 1, 300));
    slack -= gap;
    at += gap;
    if (count > 1 && rng.below(8) == 0) {
      // On a read it swallows bytes; on a write it stands for none.
      blocks.push_back(descriptor(SglType::bit_bucket, rng.next(), length));
      if (!to_host) continue;
      pieces_.push_back({nullptr, length});
    } else {
      blocks.push_back(descriptor(SglType::data_block, iova(data(at)), length));
      pieces_.push_back({data(at), length});
    }
    at += length;
    left -= length;
  }
  Status expected = Status::success;
  if (damage) {
    SglDescriptor& victim = blocks[rng.below(blocks.size())];
    const bool is_block = (victim.identifier >> 4) == static_cast<unsigned>(SglType::data_block);
    switch (rng.below(4)) {
      case 0:
        if (!is_block) break;
        victim.address = kUnmapped;
        expected = Status::data_transfer_error;
        break;
      case 1:
        victim.identifier = 0x40;
        expected = Status::sgl_descriptor_type_invalid;
        break;
      case 2:
        if (!to_host && (blocks.back().identifier >> 4) == static_cast<unsigned>(SglType::bit_bucket)) break;
        --blocks.back().length_bytes;
        expected = Status::data_sgl_length_invalid;
        break;
      default:
        blocks.push_back(descriptor(SglType::data_block, iova(data(0)), 1));
        expected = Status::data_sgl_length_invalid;
        break;
    }
  }
  if (blocks.size() == 1) {
    sqe.sgl1 = blocks[0];
    return expected;
  }
  // One last segment, or a first segment that leads to it.
  const std::size_t split = rng.below(2) == 0 ? 0 : 1 + rng.below(blocks.size() - 1);
  const auto store = [&](std::uint64_t page, std::span<const SglDescriptor> entries) {
    std::memcpy(list(page * kPage), entries.data(), entries.size_bytes());
    return iova(list(page * kPage));
  };
  const auto rest = std::span(blocks).subspan(split);
  const SglDescriptor last = descriptor(SglType::last_segment, store(1, rest), rest.size_bytes());
  if (split == 0) {
    sqe.sgl1 = last;
  } else {
    std::vector<SglDescriptor> first(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(split));
    first.push_back(last);
    sqe.sgl1 = descriptor(SglType::segment, store(0, first), first.size() * sizeof(SglDescriptor));
  }
  return expected;
}

void Slot::scatter(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  for (const Piece& piece : pieces_) {
    std::memcpy(piece.host, bytes.data() + at, piece.bytes);
    at += piece.bytes;
  }
}

void Slot::gather(std::span<std::byte> bytes, std::span<bool> known) const {
  std::size_t at = 0;
  for (const Piece& piece : pieces_) {
    std::fill_n(known.begin() + static_cast<std::ptrdiff_t>(at), piece.bytes, piece.host != nullptr);
    if (piece.host != nullptr) std::memcpy(bytes.data() + at, piece.host, piece.bytes);
    at += piece.bytes;
  }
}

void Slot::paint() { std::memset(memory_, static_cast<int>(kPaint), data_pages_ * kPage); }

bool Slot::intact(bool all) const {
  const auto clean = [](const std::byte* from, const std::byte* to) {
    return from >= to || (*from == kPaint && std::memcmp(from, from + 1, static_cast<std::size_t>(to - from) - 1) == 0);
  };
  const std::byte* const end = memory_ + data_pages_ * kPage;
  if (all) return clean(memory_, end);
  std::vector<Piece> placed;
  for (const Piece& piece : pieces_)
    if (piece.host != nullptr) placed.push_back(piece);
  std::ranges::sort(placed, {}, &Piece::host);
  const std::byte* at = memory_;
  for (const Piece& piece : placed) {
    if (!clean(at, piece.host)) return false;
    at = piece.host + piece.bytes;
  }
  return clean(at, end);
}

SlotPool::SlotPool(driver::PciDevice& device, std::uint32_t slots, std::uint64_t max_transfer_bytes)
    : data_pages_(max_transfer_bytes / Slot::kPage + 4),
      memory_(device, slots * (data_pages_ + Slot::kListPages) * Slot::kPage) {
  slots_.reserve(slots);
  for (std::uint32_t i = 0; i < slots; ++i)
    slots_.emplace_back(memory_.data() + i * (data_pages_ + Slot::kListPages) * Slot::kPage, data_pages_);
  for (Slot& slot : slots_) free_.push_back(&slot);
}

Slot* SlotPool::take() {
  if (free_.empty()) return nullptr;
  Slot* const slot = free_.back();
  free_.pop_back();
  return slot;
}

}  // namespace flashmob::simulation
