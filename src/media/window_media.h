// A part of other media, as if it were all there is: what a lease shows of a drive.
//
// Nothing that hosts change beside the bytes is saved, for the other media's records are of the whole. Media whose
// bytes are not addressable and that have queues of their own (direct:) are no window's: their queues belong to one
// namespace.
//
// Thread rule: as media.h. The other media outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "media/media.h"

namespace flashmob::media {

class WindowMedia final : public Media {
 public:
  // [first_byte, first_byte + size_bytes) lies within `of`. `writable`: if `of` is, too.
  WindowMedia(Media& of, std::uint64_t first_byte, std::uint64_t size_bytes, bool writable);

  bool direct_stores() const override { return of_.direct_stores(); }
  bool pages_may_go() const override { return of_.pages_may_go(); }
  bool is_disk_full() const override { return of_.is_disk_full(); }
  bool writable() const override { return writable_ && of_.writable(); }
  void hold(std::uint64_t offset, std::uint64_t bytes) override;
  void let_go(std::uint64_t offset, std::uint64_t bytes) override;
  bool read(std::uint64_t offset, std::span<std::byte> out) override;
  bool write(std::uint64_t offset, std::span<const std::byte> in) override;
  bool deallocate(std::uint64_t offset, std::uint64_t bytes) override;
  bool discard(std::uint64_t offset, std::uint64_t bytes) override;
  bool discard_zeroes() const override { return of_.discard_zeroes(); }
  bool flush() override { return of_.flush(); }
  bool sync_waits() const override { return of_.sync_waits(); }
  bool sync(std::uint64_t offset, std::uint64_t bytes) override;
  std::string describe() const override;

 private:
  // Where a range of the window lies in the whole; it is inside the window.
  std::uint64_t at(std::uint64_t offset, std::uint64_t bytes) const;

  Media& of_;
  const std::uint64_t first_byte_;
  const bool writable_;
};

}  // namespace flashmob::media
