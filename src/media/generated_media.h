// Content made on the spot: each 512-byte sector is media::fill_block of (sector number, nsid, generation 0, seed).
// Nothing is stored, so any size costs nothing and every read can be verified. Not writable.
//
// Thread rule: as media.h; there is no mutable state.
#pragma once

#include "media/media.h"

namespace flashmob::media {

class GeneratedMedia final : public Media {
 public:
  GeneratedMedia(std::uint64_t size_bytes, std::uint32_t nsid, std::uint64_t seed)
      : Media(size_bytes, nullptr), nsid_(nsid), seed_(seed) {}

  bool writable() const override { return false; }
  bool read(std::uint64_t offset, std::span<std::byte> out) override;
  bool write(std::uint64_t, std::span<const std::byte>) override { return false; }
  bool deallocate(std::uint64_t, std::uint64_t) override { return false; }
  bool flush() override { return true; }
  bool sync(std::uint64_t, std::uint64_t) override { return true; }
  std::string describe() const override { return "generated"; }

 private:
  std::uint32_t nsid_;
  std::uint64_t seed_;
};

}  // namespace flashmob::media
