// Anonymous memory: sparse, in huge pages where that cannot cost more than the namespace itself.
//
// Address space is reserved, memory is not: a namespace costs what is written to it. A namespace that fits in the
// machine's memory asks for 2 MiB pages, which random access needs to be fast; a larger one, which can only be used
// sparsely, takes 4 KiB pages, because one written sector would otherwise cost 2 MiB.
//
// Thread rule: as media.h.
#pragma once

#include <memory>
#include <string>

#include "media/mapped_media.h"

namespace flashmob::media {

class MemoryMedia final : public MappedMedia {
 public:
  // The size of the pages in which a namespace of that size lies: what its first written byte costs.
  static std::uint64_t page_bytes_for(std::uint64_t size_bytes);
  // Throws ConfigError when the address space cannot be had.
  static std::unique_ptr<MemoryMedia> create(std::uint64_t size_bytes);

  bool flush() override { return true; }
  bool sync(std::uint64_t, std::uint64_t) override { return true; }
  std::string describe() const override { return "memory"; }

 protected:
  bool release(std::uint64_t offset, std::uint64_t bytes) override;

 private:
  using MappedMedia::MappedMedia;
};

}  // namespace flashmob::media
