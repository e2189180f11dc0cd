// What the fuzzers of file systems share: a device made from the input, and everything that can be asked of a source.
//
// Input: one byte says how large the device is and whether checksums are verified; then come records, each the place on
// the device (in 16 bytes, 32 bits), how many times 16 bytes follow (8 bits), and those. The rest is zero. Seeds are
// made by seed_volume.py, with checksums that are right; without their verification a changed byte gets past them.
//
// One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "flashmob/extents.h"
#include "fuzz/input.h"

namespace flashmob::fuzz {

class SparseDevice : public DeviceReader {
 public:
  explicit SparseDevice(std::uint64_t bytes) : bytes_(bytes) {}

  std::uint64_t size_bytes() const override { return bytes_; }
  void put(std::uint64_t offset, std::byte value) {
    if (offset < bytes_) pages_[offset / kPage][offset % kPage] = value;
  }
  void read(std::uint64_t offset, std::span<std::byte> to) override {
    FLASHMOB_CHECK(offset <= bytes_ && to.size() <= bytes_ - offset);
    for (std::size_t done = 0; done < to.size();) {
      const std::uint64_t at = offset + done;
      const std::size_t part = std::min<std::size_t>(kPage - at % kPage, to.size() - done);
      if (const auto found = pages_.find(at / kPage); found != pages_.end())
        std::memcpy(to.data() + done, found->second.data() + at % kPage, part);
      else
        std::memset(to.data() + done, 0, part);
      done += part;
    }
  }

 private:
  static constexpr std::size_t kPage = 512;
  const std::uint64_t bytes_;
  std::map<std::uint64_t, std::array<std::byte, kPage>> pages_;
};

inline void check_sentence(const std::string& text) {
  FLASHMOB_CHECK(!text.empty());
  for (const char sign : text) FLASHMOB_CHECK(static_cast<unsigned char>(sign) >= 0x20);
}

// Extents follow each other without gaps to the end of what was asked for, and lie on the device.
inline void check_extents(const std::vector<FileExtent>& extents, std::uint64_t offset, std::uint64_t end,
                          std::uint64_t device_bytes) {
  std::uint64_t at = offset;
  for (const FileExtent& extent : extents) {
    FLASHMOB_CHECK(extent.file_offset == at && extent.bytes > 0);
    if (extent.has_place())
      FLASHMOB_CHECK(extent.device_offset < device_bytes && extent.bytes <= device_bytes - extent.device_offset);
    else
      FLASHMOB_CHECK(extent.device_offset == 0);
    at += extent.bytes;
  }
  FLASHMOB_CHECK(at == std::max(offset, end));
}

inline void ask_of_file(ExtentSource& source, const FileInfo& file, std::uint64_t device_bytes) {
  try {
    const std::uint64_t size = file.size_bytes;
    check_extents(source.extents(file.path, 0, ~std::uint64_t{0}), 0, size, device_bytes);
    const std::uint64_t middle = size / 2;
    check_extents(source.extents(file.path, middle, 5000), middle,
                  middle + std::min<std::uint64_t>(5000, size - middle), device_bytes);
    std::array<std::byte, 3000> data;
    FLASHMOB_CHECK(source.read(file.path, middle, data) == std::min<std::uint64_t>(data.size(), size - middle));
  } catch (const ExtentError& error) {
    check_sentence(error.what());
  }
}

inline void ask_everything(ExtentSource& source, std::uint64_t device_bytes) {
  const std::vector<FileInfo> files = source.files();
  for (const std::string& problem : source.problems()) check_sentence(problem);
  std::size_t asked = 0;
  for (const FileInfo& file : files) {
    FLASHMOB_CHECK(file.path.starts_with('/'));
    if (file.kind == FileKind::file && ++asked <= 50) ask_of_file(source, file, device_bytes);
    try {
      const FileInfo found = source.look_up(file.path);
      FLASHMOB_CHECK(file.kind == FileKind::link || found.inode == file.inode);
    } catch (const ExtentError& error) {
      check_sentence(error.what());
    }
    if (asked > 50) break;
  }
}

// `magic` is put where the file system has it, so that it is always this one that is read.
inline void fuzz_volume(const std::uint8_t* data, std::size_t size, std::uint64_t magic_at, std::string_view magic) {
  Input input(data, size);
  const std::uint8_t shape = input.byte();
  const std::uint64_t device_bytes = std::uint64_t{64 << 10} << (shape & 15) % 14;
  auto device = std::make_unique<SparseDevice>(device_bytes);
  while (!input.empty()) {
    const std::uint64_t offset = std::uint64_t{input.take<std::uint32_t>()} * 16;
    const std::vector<std::byte> bytes = input.bytes(std::size_t{input.byte()} * 16);
    for (std::size_t i = 0; i < bytes.size(); ++i) device->put(offset + i, bytes[i]);
  }
  for (std::size_t i = 0; i < magic.size(); ++i) device->put(magic_at + i, static_cast<std::byte>(magic[i]));
  const ExtentOptions options{.verify_checksums = (shape & 0x80) != 0, .max_files = 2000, .max_extents = 2000};
  try {
    const std::unique_ptr<ExtentSource> source = ExtentSource::open(std::move(device), "input", options);
    ask_everything(*source, device_bytes);
  } catch (const ExtentError& error) {
    check_sentence(error.what());
  }
}

}  // namespace flashmob::fuzz
