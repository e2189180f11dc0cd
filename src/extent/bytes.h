// A view of bytes that a stranger wrote: numbers of either byte order by their offset, checked against the end.
//
// Sources of the layouts that are read this way: ext4.h and xfs.h. Pure; any thread. The bytes outlive the view.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "flashmob/extents.h"

namespace flashmob::extent {

class Bytes {
 public:
  Bytes(std::span<const std::byte> data) : data_(data) {}  // NOLINT(google-explicit-constructor): it is one

  std::size_t size() const { return data_.size(); }
  const std::byte* data() const { return data_.data(); }
  Bytes part(std::size_t at, std::size_t bytes) const {
    check(at, bytes);
    return data_.subspan(at, bytes);
  }
  std::string_view text(std::size_t at, std::size_t bytes) const {
    check(at, bytes);
    return {reinterpret_cast<const char*>(data_.data()) + at, bytes};
  }
  std::uint8_t u8(std::size_t at) const { return static_cast<std::uint8_t>(little(at, 1)); }
  std::uint16_t le16(std::size_t at) const { return static_cast<std::uint16_t>(little(at, 2)); }
  std::uint32_t le32(std::size_t at) const { return static_cast<std::uint32_t>(little(at, 4)); }
  std::uint16_t be16(std::size_t at) const { return static_cast<std::uint16_t>(big(at, 2)); }
  std::uint32_t be32(std::size_t at) const { return static_cast<std::uint32_t>(big(at, 4)); }
  std::uint64_t be64(std::size_t at) const { return big(at, 8); }
  bool is_zero() const {
    return std::all_of(data_.begin(), data_.end(), [](std::byte byte) { return byte == std::byte{0}; });
  }

 private:
  void check(std::size_t at, std::size_t bytes) const {
    if (at > data_.size() || bytes > data_.size() - at)
      throw ExtentError("a structure of the file system ends before its last field; check it with its own fsck");
  }
  std::uint64_t little(std::size_t at, std::size_t bytes) const {
    check(at, bytes);
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(data_[at + i]);
    return value;
  }
  std::uint64_t big(std::size_t at, std::size_t bytes) const {
    check(at, bytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<std::uint8_t>(data_[at + i]);
    return value;
  }

  std::span<const std::byte> data_;
};

}  // namespace flashmob::extent
