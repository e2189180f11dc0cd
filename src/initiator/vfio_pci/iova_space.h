// The addresses that a device uses for the host's memory, behind an IOMMU: they need not be those of this process, and
// not all of them can be. Hands out whole pages, the lowest that are free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace flashmob::initiator {

// First and last address, as the kernel says them: the last of all would have no end.
struct IovaRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

class IovaSpace {
 public:
  // `usable`: what the IOMMU can translate; may overlap and come in any order. Address 0 is never handed out, because
  // it looks like no address.
  explicit IovaSpace(std::span<const IovaRange> usable);

  // A free range of `bytes`, rounded up to whole pages. Throws ConfigError if there is none.
  std::uint64_t allocate(std::size_t bytes);
  // Takes [iova, iova + bytes) where it lies in whole pages that are free. False if not.
  bool take(std::uint64_t iova, std::size_t bytes);
  // Whether exactly this range is taken.
  bool holds(std::uint64_t iova, std::size_t bytes) const;
  // Gives back what was taken at `iova`; nothing where nothing was.
  void release(std::uint64_t iova);

 private:
  void add_free(std::uint64_t first, std::uint64_t last);

  std::map<std::uint64_t, std::uint64_t> free_;   // first -> last, apart from each other
  std::map<std::uint64_t, std::uint64_t> taken_;  // first -> last
};

}  // namespace flashmob::initiator
