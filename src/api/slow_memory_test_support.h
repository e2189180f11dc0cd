// Media that lies in memory and takes its time to give it back.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/direct_media_test_support.h"
#include "media/media.h"

namespace flashmob::api::direct_media {

// Each part takes longer than a slice, and only what lies in the first bytes is really there.
class SlowMemory final : public media::Media {
 public:
  explicit SlowMemory(std::uint64_t size_bytes) : SlowMemory(size_bytes, std::vector<std::byte>(kBytes)) {}
  bool read(std::uint64_t, std::span<std::byte>) override { return true; }
  bool write(std::uint64_t, std::span<const std::byte>) override { return true; }
  bool deallocate(std::uint64_t, std::uint64_t) override {
    std::this_thread::sleep_for(std::chrono::microseconds(part_us.load()));
    parts.fetch_add(1);
    return true;
  }
  bool flush() override { return true; }
  bool sync(std::uint64_t, std::uint64_t) override { return true; }
  std::string describe() const override { return "slow"; }

  std::atomic<std::uint64_t> parts{0};
  std::atomic<std::uint32_t> part_us{50};

 private:
  SlowMemory(std::uint64_t size_bytes, std::vector<std::byte> bytes)
      : Media(size_bytes, bytes.data()), bytes_(std::move(bytes)) {}
  std::vector<std::byte> bytes_;
};

}  // namespace flashmob::api::direct_media
